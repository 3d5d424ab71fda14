"""What others see of a rank in /proc: the command that was asked for, and the mark of its worker, not the zygote's.

The kernel shows the bytes where arguments and environment of the process were put when it began. The agent made both places long
enough. What Python and the C library know of them are copies, made before. A fork has the same places, so they are looked for once.
"""

from __future__ import annotations

import ctypes
import os
import sys

#: The variable by which the agent knows whose a process is.
WORKER_MARK = "PENSTOCK_WORKER"
#: Places of `arg_start`, `arg_end`, `env_start` and `env_end` among the fields of /proc/self/stat that follow the name.
FIELDS = slice(45, 49)


class Title:
    """Where the words of the command and the mark are, as address and length."""

    def __init__(self) -> None:
        with open("/proc/self/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        start, end, first, last = map(int, fields[FIELDS])
        self.words = (start, end - start) if 0 < start < end else None
        self.mark: tuple[int, int] | None = None
        known = ctypes.string_at(first, last - first) if 0 < first < last else b""
        name = WORKER_MARK.encode() + b"="
        at = (b"\0" + known).find(b"\0" + name)
        if at >= 0:
            place = at + len(name)
            self.mark = (first + place, known.index(b"\0", place) - place)

    def show(self, command: list[str], worker: str | None) -> None:
        """Put the words and the mark there; words are cut where they do not fit, a mark makes sense only whole."""
        if hasattr(sys, "orig_argv"):
            sys.orig_argv = list(command)
        if self.words is not None:
            _put(*self.words, b"\0".join(map(os.fsencode, command)))
        if self.mark is not None and worker is not None and len(worker) < self.mark[1]:
            _put(*self.mark, os.fsencode(worker))


def _put(place: int, length: int, text: bytes) -> None:
    ctypes.memmove(place, text[: length - 1].ljust(length, b"\0"), length)
