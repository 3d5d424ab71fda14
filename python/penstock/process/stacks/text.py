"""Groups of stacks as text. Pure."""

import os
from collections.abc import Iterator, Sequence

from penstock.process.stacks.collection import Collected
from penstock.process.stacks.frames import Frame, Kernel, Thread
from penstock.process.stacks.groups import Group

STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "sleeps in the kernel and cannot be killed",
    "T": "is stopped",
    "t": "is traced",
    "Z": "is over",
    "I": "idles",
    "gone": "is gone",
}
#: Of a thread; what lies between is left out and counted.
FRAMES_SHOWN = 60


def shown(collected: Collected) -> str:
    """Everything, group by group; innermost call first."""
    if not collected.groups:
        return f"{collected.job}: no worker runs"
    return shown_groups(collected.groups, len(collected.looks))


def shown_groups(groups: Sequence[Group], total: int) -> str:
    """The same of groups that were collected elsewhere, of so many workers."""
    return "\n\n".join("\n".join(_group(group, total)) for group in groups)


def _group(group: Group, total: int) -> Iterator[str]:
    count = len(group.workers)
    where = f" on {group.hosts}" if group.hosts else ""
    yield f"{group.names}  ({count} of {total}){where}: {_state(group.kernel)}"
    threads = group.native or group.threads
    if group.native_of and count > 1:
        yield f"  native frames are those of {group.native_of}"
    if group.problem:
        yield f"  {group.problem}"
    if not threads:
        yield f"  {group.kernel.command}"
    for thread in threads:
        if thread.name:
            yield f"  {thread.name}"
        yield from _frames(thread)


def _state(kernel: Kernel) -> str:
    state = STATES.get(kernel.state, f"state {kernel.state}")
    return f"{state} in {kernel.waits_in}" if kernel.waits_in else state


def _frames(thread: Thread) -> Iterator[str]:
    frames = [_frame(frame) for frame in thread.frames]
    if len(frames) > FRAMES_SHOWN:
        half = FRAMES_SHOWN // 2
        left = len(frames) - FRAMES_SHOWN
        frames = [*frames[:half], f"… {left} more", *frames[-half:]]
    yield from (f"    {frame}" for frame in frames)


def _frame(frame: Frame) -> str:
    if frame.native:
        return f"{frame.function} [{frame.file}]" if frame.file else frame.function
    return f"{frame.function} ({_short(frame.file)}:{frame.line})"


def _short(path: str) -> str:
    """From the package on; of a script, its name."""
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in path:
            return path.rpartition(mark)[2]
    return os.path.basename(path)
