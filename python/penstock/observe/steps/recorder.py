"""What a loop tells about its steps, and the row that becomes of it.

The loop's thread reads clocks, adds up integers and hands one list over per step; everything that may take time is done by other threads. Nothing
here raises into training: a recorder that cannot write says so once and stays silent.
"""

import gc
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from penstock._rust import Part, PartClock, StepWriter
from penstock.errors import PenstockError
from penstock.observe.steps.clock import boot_id, clocks_ns
from penstock.observe.steps.columns import FEED_STAGES, FOLDER, INTEGERS, PARTS, TOLD_PARTS, UNMEASURED
from penstock.observe.steps.sampler import Sampler
from penstock.observe.steps.stack_file import StackFile

#: Of all step files of a rank.
BYTES_MAX = 1 << 30
#: Rows whose values may still come.
LATE_MAX = 64
#: Durations that say what is usual, and seconds between two anchors.
_USUAL, _ANCHOR_S = 31, 60
NUMBER = {part: number for number, part in enumerate(PARTS)}
_GC, _EVAL = NUMBER["gc"], NUMBER["eval"]
_AT = {name: at for at, name in enumerate(INTEGERS)}
_TOLD = [(NUMBER[part], _AT[f"host.{part}"]) for part in TOLD_PARTS]
_TOLD_BITS = sum(1 << part for part, _ in _TOLD)
_FIRST_PART, _RSS, _DEPTH = _AT[f"host.{PARTS[0]}"], _AT["rss"], _AT["feed_depth"]
_FEED = _AT[f"feed.{FEED_STAGES[0]}"]
_BLANK = [UNMEASURED] * len(INTEGERS)
_log = logging.getLogger("penstock.observe")


class StepRecorder:
    """Records the steps of one rank of one life into ``steps/`` below a directory."""

    def __init__(self, directory: Path, life: int, rank: int, *, bytes_max: int = BYTES_MAX) -> None:
        """``bytes_max``: of all files of the rank; the oldest rows become roll-ups beyond it."""
        self.directory, self.life, self.rank = directory, life, rank
        folder = directory / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        header = {
            "form": 1,
            "life": life,
            "rank": rank,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "boot_id": boot_id(),
        }
        self._stem = folder / f"{life:06d}-{rank:04d}"
        self._writer = StepWriter(
            folder,
            self._stem.name,
            header=msgspec.json.encode(header).decode(),
            columns=list(INTEGERS),
            bytes_max=bytes_max,
        )
        self._clock = PartClock(NUMBER["rest"])
        self._parts = {name: self._clock.part(number) for name, number in NUMBER.items()}
        self._process = os.getpid()
        #: The loop's thread.
        self.thread = threading.get_ident()
        self._step: int | None = None
        #: Whether the next row begins where the last one ended.
        self._is_going = False
        #: Values of the row that is under way.
        self._values = _BLANK.copy()
        self._scalars: dict[str, float] = {}
        #: Integers of the row under way whose columns are added as they come.
        self._counts: dict[str, int] = {}
        #: Rows that were written, by step; the newest counts.
        self._rows: dict[int, int] = {}
        self._columns: dict[str, int | None] = {}
        self._durations: deque[int] = deque(maxlen=_USUAL)
        self._feed_before: tuple[float, float, float, float] | None = None
        self._rss = UNMEASURED
        #: Asked by the sampler's thread: facts about the device's memory, by column.
        self.memory: Callable[[], Mapping[str, int]] | None = None
        self._of_device: list[tuple[int, int]] = []
        self._seconds = 1
        self._writer.anchor(*clocks_ns())
        self._told: str | None = None
        self._closed = False
        gc.callbacks.append(self._collecting)
        self._sampler = Sampler(self, _stacks(self._writer.path))

    def begin(self, step: int) -> None:
        """A step begins; the time since the last one's end is its own. Called again before ``end``, it only corrects the number."""
        if not self._is_going:
            self._clock.restart()
            self._is_going = True
        self._step = step
        self._writer.begin(step, self._clock.begin)

    def enter(self, part: str) -> None:
        """From now on time belongs to a part, until ``leave``."""
        self._clock.enter(NUMBER[part])

    def leave(self) -> None:
        """The innermost part is over."""
        self._clock.leave()

    def part(self, name: str) -> Part:
        """A block whose time belongs to a part."""
        return self._parts[name]

    def is_evaluating(self) -> bool:
        """Whether an evaluation is around what happens now."""
        return self._clock.is_open(_EVAL)

    def fact(self, name: str, value: int) -> None:
        """An integer of the row that is under way, such as its tokens."""
        self._values[_AT[name]] = value

    def count(self, name: str, value: int) -> None:
        """An integer of the row that is under way, of a column that other loops do not have."""
        self._counts[name] = value

    def beside(self, suffix: str) -> Path:
        """A file of this rank of this life."""
        return self._stem.with_name(self._stem.name + suffix)

    def feed(self, depth: int, busy_s: tuple[float, float, float, float]) -> None:
        """How many batches wait, and how long the feed's threads have been busy since it was opened, by stage."""
        values, before, self._feed_before = self._values, self._feed_before, busy_s
        values[_DEPTH] = depth
        if before is not None and busy_s >= before:
            values[_FEED] = int((busy_s[0] - before[0]) * 1e9)
            values[_FEED + 1] = int((busy_s[1] - before[1]) * 1e9)
            values[_FEED + 2] = int((busy_s[2] - before[2]) * 1e9)
            values[_FEED + 3] = int((busy_s[3] - before[3]) * 1e9)

    def scalar(self, step: int, name: str, value: float) -> None:
        """A number that the program gave in a step, also when that step is over."""
        if step == self._step:
            self._scalars[name] = value
        elif (row := self._rows.get(step)) is not None:
            self._patch_scalar(row, name, value)

    def late(self, row: int, name: str, value: int) -> None:
        """An integer of a row that is written, such as what the device took."""
        self._writer.patch(row, _AT[name], value)

    def commit(self, step: int) -> None:
        """The checkpoint before a step exists."""
        self._writer.commit(step)

    def end(self, step: int) -> int | None:
        """The step is over: its row, by number. None when it was not under way."""
        if self._step != step or self._process != os.getpid():
            return None
        values, self._values = self._values, _BLANK.copy()
        begin, end, ns, entered = self._clock.turn(len(PARTS))
        values[:_FIRST_PART] = step, begin, end
        values[_FIRST_PART : _FIRST_PART + len(ns)] = ns
        if entered & _TOLD_BITS != _TOLD_BITS:
            for part, at in _TOLD:
                if not entered >> part & 1:
                    values[at] = UNMEASURED
        values[_RSS] = self._rss
        for at, value in self._of_device:
            values[at] = value
        row = self._writer.row(values)
        self._durations.append(end - begin)
        self._rows[step] = row
        if len(self._rows) > LATE_MAX:
            del self._rows[next(iter(self._rows))]
        for name, scalar in self._scalars.items():
            self._patch_scalar(row, name, scalar)
        for name, count in self._counts.items():
            self._patch_count(row, name, count)
        self._scalars, self._counts, self._step = {}, {}, None
        return row

    def pause(self) -> None:
        """No step is under way: what comes now is in no row."""
        self._step = None
        self._is_going = False
        self._writer.begin(-1, 0)

    def under_way(self) -> tuple[int, int] | None:
        """Step and beginning of the step that is under way."""
        step = self._step
        return None if step is None else (step, self._clock.begin)

    def current_part(self) -> str:
        """The part that time belongs to now."""
        return PARTS[self._clock.current()]

    def usual_durations(self) -> list[int]:
        """Nanoseconds of the last steps."""
        return list(self._durations)

    def every_second(self, rss: int) -> None:
        """Of the sampler's thread: memory, clocks, and what the writer could not write."""
        if rss >= 0:
            self._rss = rss
        if self.memory is not None:
            # A device that has failed is told by training itself.
            with suppress(RuntimeError):
                self._of_device = [(_AT[name], value) for name, value in self.memory().items()]
        if self._seconds % _ANCHOR_S == 0:
            self._writer.anchor(*clocks_ns())
        self._seconds += 1
        statistics = self._writer.statistics()
        error = None if statistics is None else statistics[-1]
        if error is not None and self._told is None:
            _log.warning("steps are not recorded while this lasts, training goes on: %s", error)
        elif error is None and self._told is not None:
            _log.warning("steps are recorded again")
        self._told = error

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Wait until what was told before is on file, as far as the disk takes it; for tests and for whoever reads at once."""
        return self._writer.flush(timeout_s)

    def statistics(self) -> Any:
        """Counts of the writer."""
        return self._writer.statistics()

    def close(self) -> None:
        """Write what is left. A step that is still under way stays as it is: begun, without an end."""
        if self._closed:
            return
        self._closed = True
        gc.callbacks.remove(self._collecting)
        if self._process != os.getpid():
            return
        self._sampler.close()
        self._writer.anchor(*clocks_ns())
        self._writer.close()

    def _patch_scalar(self, row: int, name: str, value: float) -> None:
        column = self._column(name, f"scalar.{name}", is_float=True)
        if column is not None:
            self._writer.patch_float(row, column, value)

    def _patch_count(self, row: int, name: str, value: int) -> None:
        column = self._column(name, name, is_float=False)
        if column is not None:
            self._writer.patch(row, column, value)

    def _column(self, name: str, title: str, *, is_float: bool) -> int | None:
        """The column of a name. One that could not be added is asked for again: the queue may only have been full."""
        column = self._columns.get(name)
        if column is None:
            column = self._writer.column(title, is_float=is_float)
            if column is None and name not in self._columns:
                _log.warning("%.80r is not recorded: its name is too long, or there are too many", name)
            self._columns[name] = column
        return column

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self.thread:
            return
        if phase == "start":
            self._clock.enter(_GC)
        elif self._clock.is_open(_GC):
            self._clock.leave()


def _stacks(block_file: Path | None) -> StackFile | None:
    try:
        return None if block_file is None else StackFile(block_file.with_suffix(".stacks"))
    except OSError:
        return None


def recorder_of(directory: Path, life: int, rank: int) -> StepRecorder | None:
    """A recorder, or None where nothing can be written: training goes on without."""
    try:
        return StepRecorder(directory, life, rank)
    except (OSError, PenstockError) as problem:
        _log.warning("steps are not recorded, training goes on: %s", problem)
        return None
