"""Who descends from whom, read from /proc, for people who look.

A process is known by its number and its start, because numbers are used again. Nothing here is signalled; that is the agent's.
"""

import os
from collections.abc import Collection, Mapping
from typing import NamedTuple

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")
_MARKS_FROM = 1 << 60


class Process(NamedTuple):
    """A process as /proc shows it."""

    pid: int
    parent: int
    #: ``R``, ``S``, ``D``, ``Z`` and so on.
    state: str
    cpu_s: float
    rss_bytes: int
    #: When it started, in ticks since the machine did; with the number, its identity.
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        """A zombie only waits for its parent to notice."""
        return self.state not in "ZX"

    def age_s(self, uptime_s: float) -> float:
        """How long it is there, on a machine that is up for so long."""
        return max(uptime_s - self.start_ticks / _TICK, 0.0)

    def words(self) -> list[str]:
        """Its command line; empty when it is gone or has none.

        A process that changed its title leaves the rest of the place empty: as many words as there are bytes. They are no arguments.
        """
        text = _read(f"/proc/{self.pid}/cmdline").rstrip(b"\0")
        return [os.fsdecode(word) for word in text.split(b"\0")] if text else []

    def environment(self) -> dict[str, str]:
        """The variables that it was started with."""
        pairs = (os.fsdecode(pair).partition("=") for pair in _read(f"/proc/{self.pid}/environ").split(b"\0"))
        return {name: value for name, equals, value in pairs if equals}


Children = dict[int, list[Process]]


def process(pid: int, start_ticks: int | None = None) -> Process | None:
    """One process; nothing when it is gone, or another one has its number."""
    try:
        text = _read(f"/proc/{pid}/stat").decode("ascii", "replace")
        # The name stands in parentheses and may itself hold parentheses and spaces: fields begin after the last one.
        fields = text[text.rindex(")") + 2 :].split()
        candidate = Process(
            pid,
            int(fields[1]),
            fields[0],
            (int(fields[11]) + int(fields[12])) / _TICK,
            int(fields[21]) * _PAGE,
            int(fields[19]),
        )
    except (ValueError, IndexError):
        return None
    return candidate if start_ticks in (None, 0, candidate.start_ticks) else None


def everyone() -> dict[int, Process]:
    """Every process that we may see, by number."""
    processes = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {candidate.pid: candidate for candidate in processes if candidate is not None}


def uptime_s() -> float:
    """How long the machine is up: the clock of starts."""
    return float(_read("/proc/uptime").split()[0])


def children_of(all_of_them: Mapping[int, Process]) -> Children:
    """The children of every process."""
    children: Children = {}
    for child in all_of_them.values():
        children.setdefault(child.parent, []).append(child)
    return children


def descendants(children: Children, root: int) -> list[tuple[int, Process]]:
    """Those below a process, with their depth; parents before children, zombies left out."""
    below: list[tuple[int, Process]] = []
    seen = {root}
    waiting = [(1, child) for child in reversed(children.get(root, []))]
    while waiting:
        depth, descendant = waiting.pop()
        # /proc is not read at one moment, so a number may show up twice; each is followed once.
        if descendant.pid in seen:
            continue
        seen.add(descendant.pid)
        if descendant.is_alive:
            below.append((depth, descendant))
        waiting += [(depth + 1, child) for child in reversed(children.get(descendant.pid, []))]
    return below


def adopted(children: Children, agent: int, workers: Collection[int]) -> dict[int, list[Process]]:
    """What workers have started and left, which their agent has adopted, by the mark of the worker."""
    by_mark: dict[int, list[Process]] = {}
    for child in children.get(agent, ()):
        if child.pid not in workers and (mark := mark_of(child.pid)) is not None:
            by_mark.setdefault(mark, []).append(child)
    return by_mark


def family(children: Children, worker: int, left: Mapping[int, list[Process]]) -> list[tuple[int, Process]]:
    """All that a worker has started, with their depth: those below it, and those that it left."""
    members = descendants(children, worker)
    for orphan in left.get(mark_of(worker) or 0, ()) if left else ():
        members += [(1, orphan)] if orphan.is_alive else []
        members += [(depth + 1, below) for depth, below in descendants(children, orphan.pid)]
    return members


def mark_of(pid: int) -> int | None:
    """The limit by which processes of a worker are known (``crates/penstock-process/src/job/mark.rs``)."""
    for line in _read(f"/proc/{pid}/limits").splitlines():
        if line.startswith(b"Max realtime timeout"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() and int(soft) >= _MARKS_FROM else None
    return None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
