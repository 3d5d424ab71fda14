"""Stacks of the ranks of one host as parts of an answer, and back: groups of equal stacks over all hosts."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import msgspec

from penstock.process.job.catalogue import Job
from penstock.process.questions.answers import Part
from penstock.process.questions.number_ranges import numbers_in
from penstock.process.questions.task_parts import first_ranks, part
from penstock.process.stacks.by_agent import collect_by_agent
from penstock.process.stacks.collection import Asked, Collected, collect
from penstock.process.stacks.frames import Kernel, Thread
from penstock.process.stacks.groups import Group, alike
from penstock.process.stacks.py_spy import FORBIDDEN


class _Stack(msgspec.Struct):
    """What is equal for all ranks of a group."""

    threads: tuple[Thread, ...]


class _First(msgspec.Struct):
    """What is that of one rank of a group."""

    kernel: Kernel = Kernel()
    native: tuple[Thread, ...] = ()
    native_of: str = ""


def stack_parts(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    """Groups of this host, with the numbers that its ranks have in the whole job."""
    first = first_ranks(job.state())
    wanted = None if task.get("ranks") is None else frozenset(numbers_in(task["ranks"]))
    shift = next(iter(first.values()), 0)
    local = None if wanted is None else frozenset(rank - shift for rank in wanted)
    limit_s = float(task["limit_s"])
    collected = collect(job, Asked(ranks=local, native=task.get("native", "no"), deadline_s=limit_s))
    if collected.looks and all(FORBIDDEN in look.problem for look in collected.looks):
        # Workers let the agent's children look into them, where the kernel lets nobody else.
        collected = collect_by_agent(job, local, patience_s=limit_s) or collected
    return [one for group in collected.groups for one in _parts(group, collected, first)]


def _parts(group: Group, collected: Collected, first: dict[str, int]) -> list[dict[str, Any]]:
    looks = {(look.role, look.rank): look for look in collected.looks}
    about = msgspec.to_builtins(_First(group.kernel, group.native, group.native_of))
    body = msgspec.json.encode(_Stack(group.threads)).decode()
    parts = []
    for role, workers in groupby(group.workers, key=lambda worker: worker[0]):
        members = list(workers)
        head = {"role": role, "problem": group.problem}
        same = [role, msgspec.to_builtins(alike(looks[members[0]]))]
        ranks = [first.get(role, 0) + rank for _, rank in members]
        if group.native_of:
            about = {**about, "native_of": f"{role}-{ranks[0]}"}
        parts.append(part(same, ranks=ranks, head=head, body=body, about=about))
    return parts


def groups_of_all(parts: list[Part], name_hosts: Callable[[str], str]) -> list[Group]:
    """Groups over all hosts, the rarest first. ``name_hosts`` makes names of host ranks."""
    groups = []
    for one in parts:
        role, ranks = str(one.head["role"]), numbers_in(one.ranks)
        about = msgspec.convert(one.about, _First, strict=False) if one.about else _First()
        cut = f"{one.cut} bytes of these stacks are cut" if one.cut else ""
        threads = () if cut else msgspec.json.decode(one.body, type=_Stack).threads
        group = Group(
            tuple((role, rank) for rank in ranks),
            threads,
            about.kernel,
            native=about.native,
            native_of=about.native_of,
            problem=cut or one.head["problem"],
            hosts=name_hosts(one.hosts),
        )
        groups.append(group)
    return sorted(groups, key=lambda group: (len(group.workers), group.workers))
