"""A rank that waits to be told: it holds a lock of its own in a directory that all hosts see, so that nobody is it twice.

``python rank_program.py FOLDER``: it adds its life to ``lives-RANK``; ``finish`` in the folder ends it well, ``fail-RANK`` does not.
"""

import fcntl
import os
import sys
import threading
import time
from pathlib import Path

LOOK_S = 0.02
LIMIT_S = 120.0
FAILED = 7


def main(folder: Path) -> int:
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
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if (folder / "finish").exists():
            return 0
        if (folder / f"fail-{rank}").exists():
            return FAILED
        threading.Event().wait(LOOK_S)
    return 98


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
