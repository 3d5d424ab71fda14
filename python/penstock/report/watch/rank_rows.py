"""The newest rows of one rank, followed: what may still change, what is settled, and what was seen last."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from penstock._rust import StepFollower
from penstock.errors import EventError
from penstock.observe.steps import UNMEASURED
from penstock.observe.steps.reader import Columns, arrays_of, stacked
from penstock.report.accounts.timeline import Times

#: Rows whose values may still come, and the one before them, whose time they say.
PENDING_MAX = 65
#: So many are settled at a time.
_SETTLED_MIN = 128
SCALAR = "scalar."
IntegerColumns = dict[str, Times]
#: Numbers of a program that are kept apart.
SCALARS_MAX = 256
_WANTED = ["step", "begin", "end", "tokens", "memory_peak", "memory_reserved", "rss", "feed_depth"]
_WANTED += ["flops_executed", "flops.", SCALAR]
#: Rows whose numbers of the program may still come.
_LATE = 2
_MEMORY = ("rss", "memory_peak", "memory_reserved")


@dataclass(slots=True)
class RankState:
    """What is known of a rank now."""

    rank: int
    life: int
    #: Its host's boot; moments of another one cannot be compared with ours.
    boot_id: str = ""
    step: int = -1
    #: Nanoseconds of the last step, and when it ended; CLOCK_BOOTTIME.
    step_ns: int | None = None
    ended_ns: int | None = None
    #: Steps that were seen to end.
    steps_seen: int = 0
    is_closed: bool = False
    #: Whether other ranks are in a later life than this one was.
    is_replaced: bool = False
    lost_rows: int = 0
    faults: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    feed_depth: int | None = None
    scalars: dict[str, float] = field(default_factory=dict)
    #: By name of a number: the step that gave it last.
    scalar_steps: dict[str, int] = field(default_factory=dict)
    #: Numbers of the program that are not finite, since the watch began.
    not_finite: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of it."""
        return self.is_closed or self.is_replaced


class _Header(msgspec.Struct, frozen=True):
    boot_id: str = ""


class RankRows:
    """Follows the newest file of the newest life of a rank."""

    def __init__(self, life: int, rank: int, path: Path) -> None:
        self.key = (life, rank, path.name)
        self._path = path
        self._follower = StepFollower(path, columns=_WANTED)
        self.state = RankState(rank, life)
        #: Rows that may still change, in order: their numbers, and their columns.
        self._numbers: Times = np.empty(0, np.int64)
        self._columns: Columns = {}
        #: What ``pending`` has made of them.
        self._pending: IntegerColumns | None = None
        #: The newest row of which scalars were counted.
        self._counted = -1
        #: Whether something happened after which sums must begin anew: a first row, a step that does not follow the one before.
        self.is_broken = False

    def look(self) -> IntegerColumns | None:
        """Take what is new. Rows that nothing can change any more, with how long they took; None where there are none."""
        try:
            news = self._follower.look()
        except EventError:
            self.state.faults += 1
            return None
        if not self.state.boot_id:
            self.state.boot_id = _boot_id(self._path)
        self.is_broken |= news.is_closed and not self.state.is_closed
        self.state.is_closed, self.state.lost_rows = news.is_closed, news.lost
        self.state.faults = max(self.state.faults, news.faults)
        if news.is_anew:
            self._numbers, self._columns = np.empty(0, np.int64), {}
            self.is_broken = True
        numbers = np.array(news.numbers, np.int64)
        if len(numbers) or news.is_anew:
            self._pending = None
        if len(numbers):
            known = int(self._numbers[-1]) if len(self._numbers) else -1
            self._add(numbers, arrays_of(news.columns()))
            self._see(int(np.searchsorted(self._numbers, known, side="right")))
        self._count_not_finite()
        return self._settled()

    @property
    def first_begin(self) -> int | None:
        """When the oldest row that is not settled began."""
        return int(self._columns["begin"][0]) if len(self._numbers) else None

    def pending(self) -> IntegerColumns:
        """Rows that are not settled and count, as far as these rows tell."""
        if self._pending is None:
            table = self._table(len(self._numbers))
            if (table["step"][1:] <= table["step"][:-1]).any():
                later = np.minimum.accumulate(table["step"][::-1])[::-1]
                keep = np.concatenate([table["step"][:-1] < later[1:], [True]])
                table = {name: column[keep] for name, column in table.items()}
            self._pending = table
        return self._pending

    def _add(self, numbers: Times, columns: Columns) -> None:
        """Rows that replace those with the same numbers, and follow the others."""
        kept = int(np.searchsorted(self._numbers, numbers[0]))
        if not kept:
            self._columns = columns
        elif columns.keys() == self._columns.keys():
            self._columns = {
                name: np.concatenate([self._columns[name][:kept], column]) for name, column in columns.items()
            }
        else:
            before = {name: column[:kept] for name, column in self._columns.items()}
            self._columns = stacked([before, columns])
        self._numbers = np.concatenate([self._numbers[:kept], numbers])

    def _settled(self) -> IntegerColumns | None:
        """Take the rows that nothing can change any more out of the pending ones."""
        count = len(self._numbers) - PENDING_MAX
        if count < _SETTLED_MIN:
            return None
        table = self._table(count)
        self._numbers = self._numbers[count:]
        self._columns = {name: column[count:] for name, column in self._columns.items()}
        return table

    def _table(self, count: int) -> IntegerColumns:
        """The first rows as columns of whole numbers, and ``time``: up to the begin of the next step, where that follows."""
        columns = self._columns
        if not count:
            return {name: np.empty(0, np.int64) for name in ("step", "begin", "end", "time")}
        table = {
            name: np.asarray(column, np.int64) for name, column in columns.items() if column.dtype == np.int64
        }
        until = table["end"].copy()
        follows = table["step"][1:] == table["step"][:-1] + 1
        until[:-1] = np.where(follows, table["begin"][1:], table["end"][:-1])
        table["time"] = until - table["begin"]
        return {name: column[:count] for name, column in table.items()}

    def _see(self, fresh: int) -> None:
        """The state after the newest rows, from one place on."""
        state, columns = self.state, self._columns
        steps = columns["step"][fresh:]
        if len(steps):
            before = np.concatenate([[state.step], steps[:-1]])
            self.is_broken |= state.ended_ns is None or bool((steps != before + 1).any())
            begin, end = int(columns["begin"][-1]), int(columns["end"][-1])
            state.step, state.step_ns, state.ended_ns = int(steps[-1]), end - begin, end
            state.steps_seen += len(steps)
        for name in (*_MEMORY, "feed_depth"):
            value = _last(columns.get(name))
            if value is not None and name in _MEMORY:
                state.memory[name] = int(value)
            elif value is not None:
                state.feed_depth = int(value)
        for name in columns:
            if not name.startswith(SCALAR):
                continue
            scalar = name.removeprefix(SCALAR)
            is_shown = scalar in state.scalars or len(state.scalars) < SCALARS_MAX
            if is_shown:
                places = np.flatnonzero(columns[name] != UNMEASURED)
                if len(places):
                    state.scalars[scalar] = float(columns[name][places[-1]])
                    state.scalar_steps[scalar] = int(columns["step"][places[-1]])

    def _count_not_finite(self) -> None:
        """Of rows whose numbers are there: all but the newest, which get them a little later."""
        newest = len(self._numbers) if self.state.is_closed else len(self._numbers) - _LATE
        first = int(np.searchsorted(self._numbers, self._counted, side="right"))
        if newest <= first:
            return
        self._counted = int(self._numbers[newest - 1])
        for name, column in self._columns.items():
            if name.startswith(SCALAR):
                self.state.not_finite += int((~np.isfinite(column[first:newest])).sum())


def _last(column: npt.NDArray[Any] | None) -> float | None:
    """The newest value that was measured."""
    if column is None:
        return None
    places = np.flatnonzero(column != UNMEASURED)
    return None if not len(places) else float(column[places[-1]])


def _boot_id(path: Path) -> str:
    """What the head of a step file says; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(24)
            length = int.from_bytes(head[16:20], "little")
            return msgspec.json.decode(file.read(min(length, 1 << 16)), type=_Header).boot_id
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ""
