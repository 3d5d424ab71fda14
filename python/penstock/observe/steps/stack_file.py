"""Samples of the loop's Python stack: what ``user`` and ``rest`` were spent on. A stack is written once, and named by number afterwards."""

import linecache
import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.observe.steps.columns import FOLDER

#: Of one file; later samples are not kept (O5).
BYTES_MAX = 64 << 20
#: Different stacks of one file, and frames of a stack, innermost first.
STACKS_MAX, FRAMES_MAX = 100_000, 64
#: Innermost frames whose source is kept, and characters of a line of it.
SOURCE_MAX, LINE_MAX = 16, 120
_NAME = re.compile(r"(\d{1,9})-(\d{1,9})-(\d{1,9})\.stacks")
_FRAME = re.compile(r"(.+):(\d+) .*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StackSample:
    """Where the loop's thread was at a moment."""

    life: int
    rank: int
    step: int
    #: CLOCK_BOOTTIME in ns.
    at: int
    #: ``file:line function``, innermost first.
    frames: tuple[str, ...]
    #: The source of the innermost frames, as it stood while they ran; empty where there is none.
    source: tuple[str, ...] = ()
    #: The part of the step that it was in; empty where that was not written.
    part: str = ""
    #: Whether it is one of the many of a slow step.
    is_slow: bool = False


class StackFile:
    """Written by the sampler's thread alone. A disk that has no room costs samples and nothing else."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._numbers: dict[tuple[str, ...], int] = {}
        self._bytes = 0

    def add(self, step: int, at: int, frames: tuple[str, ...], part: str, *, is_slow: bool) -> None:
        """Keep a sample, while there is room."""
        lines = b""
        number = self._numbers.get(frames)
        if number is None:
            if len(self._numbers) >= STACKS_MAX:
                return
            number = len(self._numbers)
            source = [_source(frame) for frame in frames[:SOURCE_MAX]]
            lines = msgspec.json.encode({"stack": number, "frames": frames, "source": source}) + b"\n"
        lines += b"%d %d %d %s%s\n" % (step, at, number, part.encode(), b" slow" if is_slow else b"")
        if self._bytes + len(lines) > BYTES_MAX:
            return
        try:
            self._file.write(lines)
        except OSError:
            return
        self._numbers[frames] = number
        self._bytes += len(lines)

    def close(self) -> None:
        """No more samples."""
        self._file.close()


def _source(frame: str) -> str:
    """The line of a frame, read by the sampler's thread: a report that is made later must not depend on files that have changed."""
    place = _FRAME.fullmatch(frame)
    return "" if place is None else linecache.getline(place[1], int(place[2])).strip()[:LINE_MAX]


def read_stacks(run_dir: str | os.PathLike[str], faults: list[str] | None = None) -> list[StackSample]:
    """All samples, by life, rank and time. Lines that a kill or a flip spoiled are passed over; files that cannot be read are told in ``faults``."""
    folder = Path(run_dir) / FOLDER
    names = [_NAME.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    samples: list[StackSample] = []
    for name in sorted((name for name in names if name), key=lambda name: tuple(map(int, name.groups()))):
        try:
            samples += _read_file(folder / name[0], int(name[1]), int(name[2]))
        except OSError as problem:
            if faults is not None:
                faults.append(f"{folder / name[0]}: {problem.strerror}")
    return samples


def _read_file(path: Path, life: int, rank: int) -> list[StackSample]:
    stacks: dict[int, _Stack] = {}
    samples = []
    for line in path.read_bytes().split(b"\n"):
        try:
            if line.startswith(b"{"):
                stack = msgspec.json.decode(line, type=_Stack)
                stacks[stack.stack] = stack
            elif line:
                step, at, number, part, slow, *_ = [*line.decode().split(" "), "", ""]
                stack = stacks[int(number)]
                samples.append(
                    StackSample(
                        life, rank, int(step), int(at), stack.frames, stack.source, part, slow == "slow"
                    )
                )
        except (msgspec.MsgspecError, ValueError, KeyError):
            continue
    return samples


class _Stack(msgspec.Struct, frozen=True):
    stack: int
    frames: tuple[str, ...]
    source: tuple[str, ...] = ()
