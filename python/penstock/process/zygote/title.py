"""What others see of a rank in /proc: the command that was asked for, and the mark of its worker, not the zygote's.

The kernel shows the bytes where arguments and environment of the process were put when it began. The agent made both places long
enough. What Python and the C library know of them are copies, made before.
"""

from __future__ import annotations

import ctypes
import os
import sys

#: The variable by which the agent knows whose a process is.
WORKER_MARK = "PENSTOCK_WORKER"
#: Places of `arg_start`, `arg_end`, `env_start` and `env_end` among the fields of /proc/self/stat that follow the name.
PLACES = slice(45, 49)


def show(command: list[str], worker: str | None) -> None:
    """Put the words and the mark there, as far as they fit."""
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(command)
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end, first, last = map(int, fields[PLACES])
    if 0 < start < end:
        _put(start, end - start, b"\0".join(map(os.fsencode, command)))
    if worker is not None and 0 < first < last:
        known = ctypes.string_at(first, last - first)
        name = WORKER_MARK.encode() + b"="
        at = (b"\0" + known).find(b"\0" + name)
        if at >= 0:
            place = at + len(name)
            _put(first + place, known.index(b"\0", place) - place, os.fsencode(worker), whole=True)


def _put(place: int, length: int, text: bytes, *, whole: bool = False) -> None:
    """Write into a place of so many bytes and fill it up; what does not fit is cut, or left out if it makes sense only whole."""
    if not whole or len(text) < length:
        ctypes.memmove(place, text[: length - 1].ljust(length, b"\0"), length)
