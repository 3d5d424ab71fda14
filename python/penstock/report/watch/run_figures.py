"""The figures of a run that goes on: those of its report, without reading all of it again.

Everything is read by the functions of the report, rank by rank, when the watch begins and whenever something happens that can undo steps: a new
life, a return to an earlier step, an end. In between only rows are added. Reading everything may take long, so it is done at most as often as
takes a small share of a core; how old figures are is told with them.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import PenstockError
from penstock.observe.steps import UNMEASURED
from penstock.observe.steps.flop_record import COLUMNS, FlopNote
from penstock.report.accounts.account_names import UNKNOWN
from penstock.report.accounts.ledger import Ledger, RankLedger, ledger_from
from penstock.report.accounts.run_timeline import rank_timelines
from penstock.report.accounts.timeline import RankTimeline, Times
from penstock.report.diagnosis.step_view import steps_of
from penstock.report.run_mfu import mfu_from
from penstock.report.watch.rank_rows import IntegerColumns, RankRows
from penstock.report.watch.step_sums import StepSums, SummedSteps
from penstock.store.home import penstock_home

#: Of a core that reading everything may take, and that computing figures may take.
_SHARE = 0.01
#: Seconds that a refresh waits for what is read; a short run is read in less.
_PATIENCE_S = 0.2
_COLUMNS = ("tokens", "flops_executed", *COLUMNS)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a run at one moment."""

    speed: dict[str, Any] = field(default_factory=dict)
    mfu: dict[str, Any] = field(default_factory=dict)
    #: By name, as the ledger has it.
    goodput: dict[str, float | str] = field(default_factory=dict)
    lives: int = 0
    #: Kind, how many, and nanoseconds of device time.
    incidents: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: When they were computed; seconds of the monotonic clock.
    at: float = 0.0


class _Budget:
    """Lets something happen as often as takes a share of a core."""

    def __init__(self) -> None:
        self._not_before = 0.0

    def allows(self) -> bool:
        return time.monotonic() >= self._not_before

    def spend(self, cpu_s: float) -> None:
        self._not_before = time.monotonic() + cpu_s / _SHARE


@dataclass(slots=True)
class _Reading:
    """Everything about a run, as it is read: rank by rank, by the report's functions."""

    path: Path
    ranks: Sequence[int]
    #: By rank: which life is followed, and when the first row began that is not settled there. Those are summed elsewhere.
    followed: dict[int, tuple[int, int | None]]
    sums: StepSums = field(default_factory=StepSums)
    ledger: Ledger | None = None
    #: Ranks that have steps, and when the last step ended that the ledger knows, by rank.
    rank_count: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    cpu_s: float = 0.0

    def read(self) -> None:
        """Read all of it. What cannot be read now, such as a journal that is torn, leaves no ledger."""
        begin = time.thread_time()
        with suppress(PenstockError, OSError):
            self.ledger = ledger_from(self._timelines())
        self.cpu_s = time.thread_time() - begin

    def _timelines(self) -> Iterator[RankTimeline]:
        """One in memory at a time; their steps are summed on the way."""
        for timeline in rank_timelines(self.path, penstock_home(), _COLUMNS, self.ranks):
            view = steps_of(timeline)
            if view is not None:
                self.rank_count += 1
                columns, (life, begin) = view.columns, self.followed.get(timeline.rank, (-1, None))
                keep = np.ones(len(columns["step"]), bool)
                if begin is not None:
                    keep = (columns["life"] != life) | (columns["begin"] < begin)
                self.sums.add({name: column[keep] for name, column in columns.items()}, view.times[keep])
            ends = [int(ends[-1]) for life in timeline.lives if len(ends := _measured(life.steps.ends))]
            if ends:
                self.ends[timeline.rank] = ends[-1]
            yield timeline


class RunFigures:
    """Keeps sums over steps, and what the ledger said when everything was read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = _Reading(path, (), {})
        #: Under way, in a thread of its own: a long run takes long, and alerts must not wait for it.
        self._reading: tuple[_Reading, threading.Thread] | None = None
        #: Whether something may have undone steps since that began.
        self._is_outdated = False
        #: Rows that were settled since that began.
        self._settled: list[IntegerColumns] = []
        #: What FLOPs are counted on.
        self.notes: list[FlopNote] = []
        self._is_stale = True
        self._reads, self._computes = _Budget(), _Budget()
        self.figures = Figures()

    def settle(self, rows: IntegerColumns) -> None:
        """Rows of a rank that nothing can change any more."""
        if self._reading is not None:
            self._settled.append(rows)
        if not self._is_stale:
            self._is_stale |= not self._read.sums.add(rows, rows["time"])

    def forget(self) -> None:
        """Something may have undone steps: everything must be read again."""
        self._is_stale = self._is_outdated = True

    def refresh(self, followed: Sequence[RankRows], ranks: Sequence[int], *, at_once: bool = False) -> None:
        """Compute them, as far as the budget allows; ``at_once``: whatever it takes."""
        if self._reading is not None:
            self._take(at_once=at_once)
        if self._is_stale and self._reading is None and (at_once or self._reads.allows()):
            reading = _Reading(
                self._path, ranks, {rows.state.rank: (rows.state.life, rows.first_begin) for rows in followed}
            )
            thread = threading.Thread(target=reading.read, name="penstock-figures", daemon=True)
            self._reading, self._settled, self._is_outdated = (reading, thread), [], False
            thread.start()
            thread.join(None if at_once else _PATIENCE_S)
            self._take(at_once=at_once)
        if not self._is_stale and (at_once or self._computes.allows()):
            begin = time.thread_time()
            self.figures = self._compute(followed)
            self._computes.spend(time.thread_time() - begin)

    def _take(self, *, at_once: bool) -> None:
        """What was read, once that is over."""
        assert self._reading is not None, "something is being read"
        reading, thread = self._reading
        if at_once:
            thread.join()
        if thread.is_alive():
            return
        self._reading = None
        self._reads.spend(reading.cpu_s)
        if reading.ledger is None or self._is_outdated:
            return
        self._read, self._is_stale = reading, False
        for rows in self._settled:
            self.settle(rows)

    def _compute(self, followed: Sequence[RankRows]) -> Figures:
        tables = [rows.pending() for rows in followed]
        summed = self._with(tables)
        assert self._read.ledger is not None, "everything was read"
        ledger = self._grown(self._read.ledger, followed)
        incidents: dict[str, tuple[int, int]] = {}
        for incident in ledger.incidents:
            count, cost = incidents.get(incident.kind, (0, 0))
            incidents[incident.kind] = (count + 1, cost + incident.cost)
        numbers = {life.number for rank in ledger.ranks for life in rank.lives}
        return Figures(
            speed=summed.speed(self._read.rank_count),
            mfu=mfu_from(summed.counted(self._read.rank_count), self.notes),
            goodput=ledger.goodput(),
            lives=len(numbers),
            incidents=incidents,
            at=time.monotonic(),
        )

    def _with(self, tables: Sequence[IntegerColumns]) -> SummedSteps:
        """The sums, with rows that may still change."""
        first = min(
            (int(table["step"].min()) for table in tables if len(table["step"])), default=self._read.sums.end
        )
        newest = self._read.sums.newest(first)
        for table in tables:
            newest.add(table, table["time"])
        return self._read.sums.before(first, newest)

    def _grown(self, ledger: Ledger, followed: Sequence[RankRows]) -> Ledger:
        """Steps that ended since everything was read are training: rows tile a loop."""
        grown = {
            rows.state.rank: max(0, rows.state.ended_ns - self._read.ends[rows.state.rank])
            for rows in followed
            if rows.state.ended_ns is not None and rows.state.rank in self._read.ends
        }
        ranks = [_trained_longer(rank, grown.get(rank.rank, 0)) for rank in ledger.ranks]
        return Ledger(ranks, ledger.incidents)


def _trained_longer(rank: RankLedger, spent: int) -> RankLedger:
    if not spent or not rank.lives:
        return rank
    last = rank.lives[-1]
    accounts = {**last.accounts, "train": last.accounts["train"] + spent}
    parts = {**last.parts, UNKNOWN: last.parts[UNKNOWN] + spent}
    return replace(
        rank,
        lives=[*rank.lives[:-1], replace(last, wall=last.wall + spent, accounts=accounts, parts=parts)],
    )


def _measured(ends: Times) -> Times:
    return np.asarray(ends[ends != UNMEASURED])
