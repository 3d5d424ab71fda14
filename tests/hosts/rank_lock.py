"""A lock for each rank in a directory that all hosts see: held from the start of a process to its end, so that nobody is a rank twice (H2)."""

import fcntl
import os
import sys
from io import TextIOWrapper
from pathlib import Path

TWICE = 99


def take_rank(folder: Path) -> TextIOWrapper:
    """Hold the lock of this rank as long as what is returned is open; where another process has it, say so in the directory and end."""
    rank, life = os.environ["RANK"], os.environ["PENSTOCK_INCARNATION"]
    lock = (folder / f"lock-{rank}").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (folder / f"twice-{rank}-{life}").touch()
        sys.exit(TWICE)
    with (folder / f"lives-{rank}").open("a") as lives:
        lives.write(f"{life}\n")
    return lock
