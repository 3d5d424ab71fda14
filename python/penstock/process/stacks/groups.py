"""Equal stacks once, with the ranks that have them. Pure.

Of hundreds of ranks most stand at the same place; what matters is who stands elsewhere. So the smallest group comes first.
"""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from penstock.process.questions.number_ranges import numbers_in, ranges
from penstock.process.stacks.frames import Kernel, Look, Thread


class Group(msgspec.Struct, frozen=True):
    """Workers with the same stacks."""

    workers: tuple[tuple[str, int], ...]
    threads: tuple[Thread, ...]
    #: What the kernel says about the first of them.
    kernel: Kernel
    #: The same place with frames of native code, taken from one of them; empty if nobody asked.
    native: tuple[Thread, ...] = ()
    #: Whose native frames these are.
    native_of: str = ""
    problem: str = ""
    #: Of a job of many hosts, where they are.
    hosts: str = ""

    @property
    def names(self) -> str:
        """As ``rank 0-6,8``, role after role."""
        roles = groupby(self.workers, key=lambda worker: worker[0])
        return ", ".join(f"{role} {ranges([rank for _, rank in ranks])}" for role, ranks in roles)


def ranks_in(text: str) -> list[int]:
    """Numbers of ``0-6,8``; an error of value for anything that ``ranges`` would not write of any ranks."""
    if not text:
        raise ValueError(text)
    return numbers_in(text)


def groups_of(looks: Sequence[Look]) -> list[Group]:
    """Groups of equal stacks, the smallest first. Without stacks, those with the same trouble and state are equal."""
    by_stack: dict[object, list[Look]] = {}
    for look in looks:
        by_stack.setdefault(alike(look), []).append(look)
    groups = [
        Group(
            tuple(
                (look.role, look.rank)
                for look in sorted(members, key=lambda member: (member.role, member.rank))
            ),
            members[0].threads,
            members[0].kernel,
            problem=members[0].problem,
        )
        for members in by_stack.values()
    ]
    return sorted(groups, key=lambda group: (len(group.workers), group.workers))


def alike(look: Look) -> object:
    """Equal for looks that stand at the same place."""
    if not look.threads:
        return (look.problem, look.kernel.state, look.kernel.waits_in)
    main, *others = look.threads
    # One that was stopped stands where the others pass; it is not like them.
    stopped = look.kernel.state in "Tt"
    # The order of the other threads is the order of their birth, which says nothing. Why native frames are missing does not either.
    return stopped, main, tuple(sorted(others, key=_order))


def _order(thread: Thread) -> tuple[object, ...]:
    return thread.name, [(f.function, f.file, f.line, f.native) for f in thread.frames]
