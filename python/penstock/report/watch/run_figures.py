"""The figures of a run that goes on: those of its report, without reading all of it again.

Everything is read by the functions of the report, rank by rank, when the watch begins and whenever something happens that can undo steps: a new
life, a return to an earlier step, an end. In between only rows are added. Reading everything may take long, so it is done at most as often as
takes a small share of a core; how old figures are is told with them.
"""

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


class RunFigures:
    """Keeps sums over steps, and what the ledger said when everything was read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sums = StepSums()
        self._ledger: Ledger | None = None
        #: By rank: when the last step ended that the ledger knows.
        self._known: dict[int, int] = {}
        #: What FLOPs are counted on.
        self.notes: list[FlopNote] = []
        self._ranks = 0
        self._is_stale = True
        self._reading, self._computing = _Budget(), _Budget()
        self.figures = Figures()

    def settle(self, rows: IntegerColumns) -> None:
        """Rows of a rank that nothing can change any more."""
        if not self._is_stale:
            self._is_stale |= not self._sums.add(rows, rows["time"])

    def forget(self) -> None:
        """Something may have undone steps: everything must be read again."""
        self._is_stale = True

    def refresh(self, followed: Sequence[RankRows], ranks: Sequence[int], *, at_once: bool = False) -> None:
        """Compute them, as far as the budget allows; ``at_once``: whatever it takes."""
        if self._is_stale and (at_once or self._reading.allows()):
            begin = time.process_time()
            # What cannot be read now, such as a journal that is torn, is read the next time.
            with suppress(PenstockError, OSError):
                self._read(followed, ranks)
            self._reading.spend(time.process_time() - begin)
        if not self._is_stale and (at_once or self._computing.allows()):
            begin = time.process_time()
            self.figures = self._compute(followed)
            self._computing.spend(time.process_time() - begin)

    def _read(self, followed: Sequence[RankRows], ranks: Sequence[int]) -> None:
        self._sums, self._ranks, self._known = StepSums(), 0, {}
        by_rank = {rows.state.rank: rows for rows in followed}
        self._ledger = ledger_from(self._folded(by_rank, ranks))
        self._is_stale = False

    def _folded(self, followed: dict[int, RankRows], ranks: Sequence[int]) -> Iterator[RankTimeline]:
        """Timelines, one in memory at a time; their steps are summed on the way, but for those that are still followed."""
        for timeline in rank_timelines(self._path, penstock_home(), _COLUMNS, ranks):
            view = steps_of(timeline)
            if view is not None:
                self._ranks += 1
                columns, rows = view.columns, followed.get(timeline.rank)
                begin = None if rows is None else rows.first_begin
                keep = np.ones(len(columns["step"]), bool)
                if rows is not None and begin is not None:
                    keep = (columns["life"] != rows.state.life) | (columns["begin"] < begin)
                self._sums.add({name: column[keep] for name, column in columns.items()}, view.times[keep])
            ends = [int(ends[-1]) for life in timeline.lives if len(ends := _measured(life.steps.ends))]
            if ends:
                self._known[timeline.rank] = ends[-1]
            yield timeline

    def _compute(self, followed: Sequence[RankRows]) -> Figures:
        tables = [rows.pending() for rows in followed]
        summed = self._with(tables)
        assert self._ledger is not None, "everything was read"
        ledger = self._grown(self._ledger, followed)
        incidents: dict[str, tuple[int, int]] = {}
        for incident in ledger.incidents:
            count, cost = incidents.get(incident.kind, (0, 0))
            incidents[incident.kind] = (count + 1, cost + incident.cost)
        numbers = {life.number for rank in ledger.ranks for life in rank.lives}
        return Figures(
            speed=summed.speed(self._ranks),
            mfu=mfu_from(summed.counted(self._ranks), self.notes),
            goodput=ledger.goodput(),
            lives=len(numbers),
            incidents=incidents,
            at=time.monotonic(),
        )

    def _with(self, tables: Sequence[IntegerColumns]) -> SummedSteps:
        """The sums, with rows that may still change."""
        first = min(
            (int(table["step"].min()) for table in tables if len(table["step"])), default=self._sums.end
        )
        newest = self._sums.newest(first)
        for table in tables:
            newest.add(table, table["time"])
        return self._sums.before(first, newest)

    def _grown(self, ledger: Ledger, followed: Sequence[RankRows]) -> Ledger:
        """Steps that ended since everything was read are training: rows tile a loop."""
        grown = {
            rows.state.rank: max(0, rows.state.ended_ns - self._known[rows.state.rank])
            for rows in followed
            if rows.state.ended_ns is not None and rows.state.rank in self._known
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
