"""What `ps` shows of a rank: the command that was asked for, not the zygote's.

The kernel shows the bytes where the arguments of the process were put when it began. The agent made that place long enough.
"""

from __future__ import annotations

import ctypes
import os
import sys

#: Places of `arg_start` and `arg_end` among the fields of /proc/self/stat that follow the name.
ARG_START, ARG_END = 45, 46


def show(command: list[str]) -> None:
    """Put the words there, as many as fit."""
    sys.orig_argv = list(command)
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[ARG_START]), int(fields[ARG_END])
    if 0 < start < end:
        words = b"\0".join(os.fsencode(word) for word in command)[: end - start - 1]
        ctypes.memmove(start, words.ljust(end - start, b"\0"), end - start)
