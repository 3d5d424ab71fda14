"""Which processes stand at the same native place: told from their stacks as they lie in memory, without symbols.

Where an unwinder goes is decided by the program counter and by two kinds of words on the stack: addresses of code (where calls return
to) and addresses of the stack itself (saved frame pointers). ``stack_words`` reads these words for all threads of a process and
writes them so that they are the same wherever libraries and stacks are mapped. Processes with equal words have equal native frames, and
comparing costs a few milliseconds, while reading symbols costs a quarter of a second for each process.
"""

import bisect
import os
import platform
from array import array
from io import FileIO
from typing import NamedTuple

PROC = "/proc"
#: A deeper stack is not compared; such a process is read by itself.
STACK_BYTES_MAX = 1 << 20
THREADS_MAX = 256
#: Elsewhere return addresses may be signed, and would not be recognised.
MACHINES = frozenset({"x86_64"})
_WORD_BYTES = 8


class _Mapping(NamedTuple):
    start: int
    end: int
    offset: int
    executable: bool
    file: str


class _Layout:
    """What is mapped where in a process."""

    def __init__(self, pid: int) -> None:
        with open(f"{PROC}/{pid}/maps", errors="surrogateescape") as lines:
            self.all = [_mapping(line) for line in lines]
        self.code = [mapping for mapping in self.all if mapping.executable]
        self._starts = [mapping.start for mapping in self.code]
        self.lowest = self._starts[0] if self._starts else 0

    def end_of(self, address: int) -> int | None:
        """Where the mapping ends that an address is in."""
        return next((mapping.end for mapping in self.all if mapping.start <= address < mapping.end), None)

    def code_at(self, address: int) -> tuple[str, int] | None:
        """An address of code as its file and the place in it."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0 or address >= self.code[index].end:
            return None
        mapping = self.code[index]
        return mapping.file, address - mapping.start + mapping.offset


def stack_words(pid: int) -> int | None:
    """A digest of what decides native frames; nothing where it cannot be told, because a thread runs or may not be read."""
    if platform.machine() not in MACHINES:
        return None
    try:
        layout = _Layout(pid)
        threads = sorted(int(name) for name in os.listdir(f"{PROC}/{pid}/task"))
        if len(threads) > THREADS_MAX:
            return None
        with open(f"{PROC}/{pid}/mem", "rb", buffering=0) as memory:
            words = [_thread_words(f"{PROC}/{pid}/task/{thread}", layout, memory) for thread in threads]
    except (OSError, ValueError):
        # It ended meanwhile, or we are not let in.
        return None
    return None if any(thread is None for thread in words) else hash(tuple(words))


def _thread_words(folder: str, layout: _Layout, memory: FileIO) -> tuple[object, ...] | None:
    before = _syscall(folder)
    if len(before) < 3:
        # It runs: its registers are nowhere to be read.
        return None
    stack, counter = int(before[-2], 16), int(before[-1], 16)
    end = layout.end_of(stack)
    if end is None or end - stack > STACK_BYTES_MAX:
        return None
    content = os.pread(memory.fileno(), end - stack, stack)
    if _syscall(folder) != before:
        return None
    words = array("Q", content[: len(content) // _WORD_BYTES * _WORD_BYTES])
    summary: list[object] = [layout.code_at(counter)]
    for index, word in enumerate(words):
        if word < layout.lowest:
            continue
        if stack <= word < end:
            summary.append((index, word - stack))
        elif (code := layout.code_at(word)) is not None:
            summary.append((index, *code))
    return tuple(summary)


def _mapping(line: str) -> _Mapping:
    span, rights, offset, device, inode, *name = line.split(maxsplit=5)
    start, end = span.split("-")
    # A file by what it is, not by its name: one that was replaced has another inode.
    file = f"{device} {inode}" if inode != "0" else "".join(name).strip()
    return _Mapping(int(start, 16), int(end, 16), int(offset, 16), "x" in rights, file)


def _syscall(folder: str) -> list[str]:
    """The call that a thread is in, with its stack pointer and program counter at the end."""
    with open(f"{folder}/syscall") as file:
        return file.read().split()
