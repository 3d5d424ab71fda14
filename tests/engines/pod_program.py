"""A rank in a pod. ``python pod_program.py FOLDER ranks|wait|fail``; the folder is seen by all pods."""

import fcntl
import json
import os
import sys
import threading
import time
from pathlib import Path

LOOK_S, LIMIT_S = 0.05, 180.0


def ranks(folder: Path) -> int:
    """A sum over all ranks, by torch."""
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    total = torch.tensor([float(distributed.get_rank())])
    distributed.all_reduce(total)
    facts = {"sum": total.item(), "host": os.uname().nodename, "shm": os.statvfs("/dev/shm").f_blocks}
    (folder / f"facts-{os.environ['RANK']}.json").write_text(json.dumps(facts))
    print(f"rank {os.environ['RANK']} has the sum {total.item():g}", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()
    return 0


def wait(folder: Path) -> int:
    """Stay until there is a file; hold a lock of this rank, so that nobody is it twice."""
    rank, life = os.environ["RANK"], os.environ["PENSTOCK_INCARNATION"]
    lock = (folder / f"lock-{rank}").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (folder / f"twice-{rank}-{life}").touch()
        return 99
    with (folder / f"lives-{rank}").open("a") as lives:
        lives.write(f"{life}\n")
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if (folder / "finish").exists():
            return 0
        threading.Event().wait(LOOK_S)
    return 98


def fail(_folder: Path) -> int:
    """As a program that cannot go on."""
    return 7


if __name__ == "__main__":
    sys.exit({"ranks": ranks, "wait": wait, "fail": fail}[sys.argv[2]](Path(sys.argv[1])))
