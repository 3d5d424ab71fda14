"""Looking at all workers at once, within a deadline.

``py-spy`` reads a process in some 10 ms; with native frames it takes 30 times as long, because it reads the symbols of every
library that the process has loaded. So native frames are taken of one worker of each group of equal stacks, unless all are asked
for; then of one worker of those whose native stacks hold the same words (``stack_words``).
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.errors import SpyMissing
from penstock.process.job.catalogue import Job
from penstock.process.stacks.frames import Look, Thread
from penstock.process.stacks.groups import Group, groups_of
from penstock.process.stacks.kernel import kernel_of
from penstock.process.stacks.py_spy import Unreadable, native_stacks, python_stacks, spy_path
from penstock.process.stacks.stack_words import stack_words
from penstock.process.stacks.targets import Target, targets_of

#: One that does not answer must not keep the others from being seen.
ONE_TIMEOUT_S = 5.0
NATIVE_TIMEOUT_S = 20.0
#: Of so many groups the native frames are taken when one of each is enough; the smallest groups come first.
NATIVE_GROUPS_MAX = 16
#: More at once than there are cores, because one that does not answer occupies nobody but a thread.
AT_ONCE_MAX = 16

Found = TypeVar("Found")


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """The stacks of a job at one moment."""

    job: str
    at: float
    took_s: float
    #: ``no``, ``one`` of each group, or ``all``.
    native: str
    looks: list[Look]
    groups: list[Group]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What to look at."""

    ranks: frozenset[int] | None = None
    native: str = "no"
    #: For everything together.
    deadline_s: float = 30.0
    #: What is known about the job, if not what its own file says.
    state: Path | None = None


def collect(job: Job, asked: Asked | None = None) -> Collected:
    """Look at every worker that runs. What cannot be read is said, worker by worker; it is no error."""
    asked = asked or Asked()
    at, begun = time.time(), time.monotonic()
    until = begun + asked.deadline_s
    targets = targets_of(job, asked.ranks, asked.state)
    try:
        spy: Path | SpyMissing = spy_path()
    except SpyMissing as problem:
        spy = problem
    looks = _at_once(targets, lambda target: look(target, spy, native=False, until=until))
    if asked.native == "all":
        looks = _all_native(targets, looks, lambda target: look(target, spy, native=True, until=until))
    groups = groups_of(looks)
    if asked.native == "one":
        by_worker = {(target.role, target.rank): target for target in targets}
        first = [by_worker[group.workers[0]] for group in groups[:NATIVE_GROUPS_MAX]]
        deep = _at_once(first, lambda target: look(target, spy, native=True, until=until))
        seen = [_with_native(group, native) for group, native in zip(groups, deep, strict=False)]
        why = f"native frames were taken of the {NATIVE_GROUPS_MAX} smallest groups only"
        groups = seen + [
            msgspec.structs.replace(group, problem=group.problem or why)
            for group in groups[NATIVE_GROUPS_MAX:]
        ]
    took_s = round(time.monotonic() - begun, 3)
    return Collected(job=job.id, at=at, took_s=took_s, native=asked.native, looks=looks, groups=groups)


def look(target: Target, spy: Path | SpyMissing, *, native: bool, until: float) -> Look:
    """One worker. Where native frames cannot be had, those of Python."""
    kernel = kernel_of(target.process)
    result = Look(role=target.role, rank=target.rank, pid=target.pid, process=target.process, kernel=kernel)

    def left_s(most_s: float) -> float:
        return max(0.05, min(most_s, until - time.monotonic()))

    problem = ""
    if kernel.state in ("gone", "Z"):
        return msgspec.structs.replace(result, problem="the process is over")
    for deep in (True, False) if native else (False,):
        try:
            if not target.is_python:
                if not deep:
                    return msgspec.structs.replace(result, problem=problem or "it is not Python")
                threads = native_stacks(target.process, timeout_s=left_s(NATIVE_TIMEOUT_S))
            elif isinstance(spy, SpyMissing):
                return msgspec.structs.replace(result, problem=str(spy))
            else:
                timeout_s = left_s(NATIVE_TIMEOUT_S if deep else ONE_TIMEOUT_S)
                threads = python_stacks(
                    target.process, spy=spy, native=deep, state=kernel.state, timeout_s=timeout_s
                )
            return msgspec.structs.replace(result, threads=threads, native=deep, problem=problem)
        except Unreadable as trouble:
            problem = problem or str(trouble)
    return msgspec.structs.replace(result, problem=problem)


def _all_native(
    targets: Sequence[Target], looks: Sequence[Look], deep_look: Callable[[Target], Look]
) -> list[Look]:
    """Native frames of every worker. Of those with equal Python stacks and equal words on their native stacks one is read."""
    before = _at_once(targets, _words)
    alike: dict[object, list[int]] = {}
    for index, (seen, words) in enumerate(zip(looks, before, strict=True)):
        alike.setdefault(index if words is None else (seen.threads, words), []).append(index)
    first = [members[0] for members in alike.values()]
    deep = dict(zip(first, _at_once([targets[index] for index in first], deep_look), strict=True))
    others = [(members[0], index) for members in alike.values() for index in members[1:]]
    after = _at_once([targets[index] for _, index in others], _words)
    moved = []
    for (twin, index), words in zip(others, after, strict=True):
        # Neither of them went on while the symbols were read, so what was found for one holds for the other.
        if deep[twin].native and words == before[index] and _python_of(deep[twin]) == looks[index].threads:
            deep[index] = msgspec.structs.replace(looks[index], threads=deep[twin].threads, native=True)
        else:
            moved.append(index)
    deep.update(zip(moved, _at_once([targets[index] for index in moved], deep_look), strict=True))
    return [deep[index] for index in range(len(targets))]


def _words(target: Target) -> int | None:
    return stack_words(target.process) if target.is_python else None


def _python_of(look: Look) -> tuple[Thread, ...]:
    return tuple(
        Thread(thread.name, tuple(frame for frame in thread.frames if not frame.native))
        for thread in look.threads
    )


def _with_native(group: Group, deep: Look) -> Group:
    if not deep.native:
        return msgspec.structs.replace(group, problem=group.problem or deep.problem)
    return msgspec.structs.replace(group, native=deep.threads, native_of=deep.worker)


def _at_once(targets: Sequence[Target], work: Callable[[Target], Found]) -> list[Found]:
    if not targets:
        return []
    count = min(AT_ONCE_MAX, len(targets), (os.cpu_count() or 1) + 6)
    with ThreadPoolExecutor(count, thread_name_prefix="penstock-stacks") as threads:
        return list(threads.map(work, targets))
