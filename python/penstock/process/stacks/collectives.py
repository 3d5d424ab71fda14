"""Who waits in which collective, by the functions on the stacks. Pure.

A rank that waits in a collective waits for all others of its process group; who is elsewhere is whom it waits for.
"""

from collections.abc import Sequence

from penstock.process.questions.number_ranges import ranges
from penstock.process.stacks.frames import Thread
from penstock.process.stacks.groups import Group

#: Where torch's collectives are; the outermost function there is the one that was called.
_TORCH = "torch/distributed/distributed_c10d.py"
#: Functions of it that are no collective of their own.
_PASSED = frozenset({"wrapper", "_wait_for_all", "wait"})
#: Where the backward pass is: gradients are reduced inside of it, in C++, so the stack of Python ends there.
_BACKWARD = "_engine_run_backward"


def collective_of(threads: Sequence[Thread]) -> str:
    """The collective that the main thread is in; empty when it is in none that can be told."""
    for thread in threads[:1]:
        for frame in reversed(thread.frames):
            if frame.file.endswith(_TORCH) and frame.function not in _PASSED:
                return frame.function
            if frame.function == _BACKWARD:
                return "backward"
    return ""


def waiting_line(groups: Sequence[Group]) -> str:
    """``rank 0-4,6-7 wait in all_reduce · elsewhere: rank 5``; empty where nobody waits, or everybody in the same."""
    inside: dict[tuple[str, str], list[int]] = {}
    everybody: dict[str, set[int]] = {}
    for group in groups:
        name = collective_of(group.threads)
        for role, rank in group.workers:
            everybody.setdefault(role, set()).add(rank)
            if name:
                inside.setdefault((role, name), []).append(rank)
    lines = []
    for (role, name), ranks in sorted(inside.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        elsewhere = everybody[role] - set(ranks)
        if elsewhere:
            verb = "waits" if len(ranks) == 1 else "wait"
            lines.append(f"{role} {ranges(ranks)} {verb} in {name} · elsewhere: {role} {ranges(elsewhere)}")
    return "\n".join(lines)
