"""A rank below a real Slurm: ``ranks`` adds up what all ranks say, ``wait`` stays until it is told to finish and says what notices it hears.

Who waits holds a lock of its rank in the directory that all hosts see, so that nobody is it twice.

``python slurm_program.py FOLDER ranks|wait``.
"""

import fcntl
import json
import os
import sys
import threading
import time
from pathlib import Path

LOOK_S = 0.02
LIMIT_S = 100.0


def ranks(folder: Path) -> int:
    """A sum over all ranks, by torch."""
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    total = torch.tensor([float(distributed.get_rank())])
    distributed.all_reduce(total)
    names = ("RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NODEID")
    facts = {**{name: os.environ[name] for name in names}, "sum": total.item(), "host": os.uname().nodename}
    (folder / f"facts-{os.environ['RANK']}.json").write_text(json.dumps(facts))
    # Threads of torch that outlive the interpreter would abort a rank that ended well.
    distributed.barrier()
    distributed.destroy_process_group()
    return 0


def wait(folder: Path) -> int:
    """Steps that do nothing, until there is a file."""
    from penstock import process

    rank, life = os.environ["RANK"], os.environ["PENSTOCK_INCARNATION"]
    lock = (folder / f"lock-{rank}").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (folder / f"twice-{rank}-{life}").touch()
        return 99
    until, step = time.monotonic() + LIMIT_S, 0
    process.pulse(step)
    with (folder / f"lives-{rank}").open("a") as lives:
        lives.write(f"{life}\n")
    heard = None
    while time.monotonic() < until:
        step += 1
        notice = process.pulse(step)
        if notice is not None and notice.kind == "save" and heard != notice.number:
            heard = notice.number
            (folder / f"notice-{rank}").write_text(
                json.dumps({"reason": notice.reason, "left_s": notice.remaining_s})
            )
        if notice is not None and notice.kind == "stop":
            return 75
        if (folder / "finish").exists():
            return 0
        if (folder / f"fail-{rank}-{life}").exists():
            return 7
        threading.Event().wait(LOOK_S)
    return 98


if __name__ == "__main__":
    sys.exit({"ranks": ranks, "wait": wait}[sys.argv[2]](Path(sys.argv[1])))
