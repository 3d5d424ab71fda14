"""A rank that waits to be told: it holds a lock of its own in a directory that all hosts see, so that nobody is it twice.

``python rank_program.py FOLDER``: it adds its life to ``lives-RANK``; ``finish`` in the folder ends it well, ``fail-RANK`` does not. With the
word ``listens`` it makes steps and leaves when it is asked to; with ``hears`` it makes steps and stays.
"""

import fcntl
import os
import sys
import threading
import time
from pathlib import Path

LOOK_S = 0.02
LIMIT_S = 120.0
FAILED, LEFT = 7, 75


def main(folder: Path, manner: str = "") -> int:
    """The program."""
    rank, life = os.environ["RANK"], os.environ["PENSTOCK_INCARNATION"]
    lock = (folder / f"lock-{rank}").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (folder / f"twice-{rank}-{life}").touch()
        return 99
    with (folder / f"lives-{rank}").open("a") as lives:
        lives.write(f"{life}\n")
    until, step = time.monotonic() + LIMIT_S, 0
    while time.monotonic() < until:
        if (folder / "finish").exists():
            return 0
        if (folder / f"fail-{rank}").exists():
            return FAILED
        if manner:
            from penstock import process

            step += 1
            notice = process.pulse(step)
            if manner == "listens" and notice is not None and notice.kind == "stop":
                return LEFT
        threading.Event().wait(LOOK_S)
    return 98


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
