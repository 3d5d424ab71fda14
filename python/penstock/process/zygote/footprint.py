"""What a program has done that others could have seen: bytes that it wrote, files and connections that it holds, processes, threads.

Asked for once, when a rank would have to be executed again. The kernel counts; nothing is put between the program and the system.
"""

from __future__ import annotations

import os
import resource
import sys
import time

from .birth import Birth
from .rules import descriptors

#: Times of files come from a clock that ticks a few hundred times a second.
CLOCK_BEHIND_NS = 20_000_000


class Footprint:
    """How things were when the program began."""

    def __init__(self, birth: Birth) -> None:
        self._pid = os.getpid()
        self._kept = {0, 1, 2, *birth.fds.values(), *birth.warm.kept}
        self._modules = set(sys.modules)
        self._written = _written_bytes()
        self._began_ns = time.time_ns()

    def seen(self) -> str | None:
        """The first thing that was done; nothing if the program may begin anew."""
        if len(os.listdir("/proc/self/task")) > 1:
            return "it has started threads"
        if resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss or _children(self._pid):
            return "it has started processes"
        for fd, what in descriptors().items():
            if fd not in self._kept:
                return f"it has opened {what}"
        written = _written_bytes()
        if written is None or self._written is None:
            return "the kernel does not tell whether it has written anything"
        if written - self._written not in (0, self._compiled_bytes()):
            return "it has written something"
        return None

    def _compiled_bytes(self) -> int:
        """What the interpreter itself wrote: modules of the program that it compiled now."""
        total = 0
        for name in set(sys.modules) - self._modules:
            cached = getattr(sys.modules[name], "__cached__", None)
            try:
                about = os.stat(cached) if isinstance(cached, str) else None
            except OSError:
                continue
            # The kernel's clock of files is a little behind.
            if about is not None and about.st_mtime_ns >= self._began_ns - CLOCK_BEHIND_NS:
                total += about.st_size
        return total


def _written_bytes() -> int | None:
    """Bytes that this process gave to `write`, to whatever."""
    try:
        with open("/proc/self/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("wchar:"))
    except (OSError, StopIteration):
        return None


def _children(pid: int) -> str:
    try:
        with open(f"/proc/self/task/{pid}/children") as file:
            return file.read().strip()
    except OSError:
        return ""
