"""What a run holds at one moment, as exports want it: rows that will not change any more, and what happened around them.

Values of a step come late: a loss when the device has computed it, times of the device when its marks are over. So the newest rows of a life that goes
on are left for the next look.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.errors import RunDamaged
from penstock.observe.steps import UNMEASURED, StepRows, list_steps, read_anchors, read_steps
from penstock.observe.steps.reader import Columns
from penstock.report.accounts.run_timeline import RunTimeline, run_timeline
from penstock.report.accounts.undone_steps import COUNTS, undone_steps
from penstock.report.exports.export_bookmark import ExportBookmark
from penstock.run.journal import journal
from penstock.run.journal.journal import Entry
from penstock.store.home import penstock_home

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: A row is as it will stay when so many newer ones are there: later values have no place to go.
NEWER_ROWS = 64
#: Or when it is this old, and a few are there: a value that takes longer is not in an export.
NEWER_NS, NEWER_FEW = 10_000_000_000, 4
#: How a life ends after which nothing comes.
FINAL = ("done", "stopped")
#: Steps whose number an export can hold: digits and varints have a limit, and no training has come near it.
STEP_MAX = 1 << 53


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """New rows of one rank of one life."""

    life: int
    rank: int
    #: As in the step table, in order of time; the last one may have no ``end``: a kill tore it.
    columns: Columns
    #: Executions that do not count, because training went on from an earlier step.
    is_lost: Flags
    #: Nanoseconds from CLOCK_BOOTTIME to the time since 1970.
    clock_ns: int
    #: Sums over everything before these rows, by column, as far as it is known.
    before: dict[str, int] = field(default_factory=dict)
    #: When the first row of this life began.
    born: int = 0

    def __len__(self) -> int:
        return len(self.columns["step"])

    @property
    def begins(self) -> Times:
        """Nanoseconds since 1970."""
        return np.asarray(self.columns["begin"], np.int64) + self.clock_ns

    @property
    def ends(self) -> Times:
        """Nanoseconds since 1970; of a torn step its beginning."""
        ends, begins = (np.asarray(self.columns[name], np.int64) for name in ("end", "begin"))
        return np.where(ends == UNMEASURED, begins, ends) + self.clock_ns

    def cut(self, rows: slice | Flags) -> "Stretch":
        """Some of its rows."""
        columns: Columns = {name: column[rows] for name, column in self.columns.items()}
        return Stretch(
            self.life, self.rank, columns, self.is_lost[rows], self.clock_ns, self.before, self.born
        )


@dataclass(frozen=True, eq=False)
class RunLook:
    """Of a run at one moment. Tables are read one after another, when they are asked for."""

    run: Path
    bookmark: ExportBookmark
    tables: list[tuple[int, int]]
    entries: list[Entry]
    timeline: RunTimeline
    #: Whether anything can still come.
    is_over: bool
    #: Executions that do not count: when those of a table began, in order.
    lost: dict[tuple[int, int], Times]
    #: The clock of every table, by boot.
    boots: dict[tuple[int, int], str]
    #: Tables of the newest life that were closed in order.
    closed: frozenset[tuple[int, int]]

    @cached_property
    def lives(self) -> list[int]:
        """Numbers of the lives that have tables."""
        return sorted({life for life, _ in self.tables})

    def ranks(self, life: int) -> list[int]:
        """Ranks of a life that have tables."""
        return [rank for number, rank in self.tables if number == life]

    def stretches(self) -> Iterator[Stretch]:
        """New rows, table by table."""
        for life, rank in self.tables:
            stretch = self.stretch(life, rank)
            if stretch is not None and len(stretch):
                yield stretch

    def stretch(self, life: int, rank: int) -> Stretch | None:
        """New rows of one table that will not change any more; None where there is nothing."""
        moments = read_steps(self.run, columns=["end"], tables=[(life, rank)])
        # Most tables of a long run have nothing new: three columns say so.
        if not moments or not len(moments[0]) or not self._chosen(moments[0])[1].any():
            return None
        (table,) = read_steps(self.run, tables=[(life, rank)])
        is_old, keep = self._chosen(table)
        # A table that is new as a whole is not copied.
        columns: Columns = (
            table.columns if keep.all() else {name: column[keep] for name, column in table.columns.items()}
        )
        lost = self.lost.get((life, rank), np.empty(0, np.int64))
        return Stretch(
            life,
            rank,
            columns,
            np.isin(columns["begin"], lost),
            self.clock_ns(life, rank),
            _sums(table, is_old),
            int(table.columns["begin"][is_old | keep][0]),
        )

    def _chosen(self, table: StepRows) -> tuple[Flags, Flags]:
        """Rows that are exported already, and new ones that will not change any more. What goes back in time is damage, and neither."""
        begins, ends, steps = (np.asarray(table.columns[name]) for name in ("begin", "end", "step"))
        until = np.where(ends == UNMEASURED, begins, ends)
        is_sound = (begins != UNMEASURED) & (until >= begins) & (steps >= 0) & (steps < STEP_MAX)
        latest = np.maximum.accumulate(np.where(is_sound, until, UNMEASURED))
        is_sound &= begins >= np.concatenate([[UNMEASURED], latest[:-1]])
        is_old = is_sound & (begins <= self.bookmark.row(table.life, table.rank))
        return is_old, is_sound & ~is_old & self._settled(table.life, table.rank, until)

    def is_table_over(self, life: int, rank: int) -> bool:
        """Whether a table will not grow any more: it was closed, or another life has begun."""
        return self.is_over or life < self.newest_life or (life, rank) in self.closed

    def is_life_over(self, life: int) -> bool:
        """Whether none of its tables will."""
        return all(self.is_table_over(life, rank) for rank in self.ranks(life))

    @cached_property
    def newest_life(self) -> int:
        """Its number; -1 when there is none."""
        return _newest(self.entries, self.tables)

    def _settled(self, life: int, rank: int, until: Times) -> Flags:
        count = len(until)
        if self.is_table_over(life, rank):
            return np.ones(count, bool)
        newer = np.arange(count - 1, -1, -1)
        is_aged = (newer >= NEWER_FEW) & (until[-1] - until >= NEWER_NS)
        return np.asarray((newer >= NEWER_ROWS) | is_aged)

    def clock_ns(self, life: int, rank: int) -> int:
        """Nanoseconds from the clock of a table to the time since 1970; 0 where no anchor tells."""
        clocks: dict[str, int] = self.bookmark.clocks
        return clocks.get(self.boots.get((life, rank), ""), 0)


def look_at(run: Path, bookmark: ExportBookmark, *, is_given_up: bool = False) -> RunLook:
    """Look at a run. ``is_given_up`` says that nothing more is waited for: what is there is all."""
    try:
        entries = journal.read(run)
    except RunDamaged:
        entries = []
    timeline = run_timeline(run, penstock_home(), ())
    tables = list_steps(run)
    boots, clocks = _boots(run)
    # What was seen first stays: moments of a run must not move between two looks.
    bookmark.clocks = {**clocks, **bookmark.clocks}
    lost = {
        (life.number, rank.rank): life.steps.begins[undone != COUNTS]
        for rank in timeline.ranks
        for life, undone in zip(rank.lives, undone_steps(rank.lives).by_life, strict=True)
    }
    closed = _closed(run, tables, _newest(entries, tables))
    is_over = is_given_up or _is_over(entries, tables, closed)
    return RunLook(run, bookmark, tables, entries, timeline, is_over, lost, boots, closed)


def _newest(entries: list[Entry], tables: list[tuple[int, int]]) -> int:
    return max([life for life, _ in tables] + [entry.incarnation for entry in entries], default=-1)


def _closed(run: Path, tables: list[tuple[int, int]], newest: int) -> frozenset[tuple[int, int]]:
    """What will not grow any more of the newest life."""
    of_newest = [table for table in tables if table[0] == newest]
    return frozenset(
        table
        for table in of_newest
        if all(rows.is_closed for rows in read_steps(run, columns=["step"], tables=[table]))
    )


def _is_over(entries: list[Entry], tables: list[tuple[int, int]], closed: frozenset[tuple[int, int]]) -> bool:
    """A run is over when its newest life has ended for good and all of its tables are closed: ranks end one after another. A loop without a run has
    no journal, only tables.
    """
    newest = _newest(entries, tables)
    of_newest = [table for table in tables if table[0] == newest]
    if entries:
        ends = [entry for entry in entries if entry.kind == "end" and entry.incarnation == newest]
        return any(entry.facts.get("how") in FINAL for entry in ends) and closed.issuperset(of_newest)
    return bool(of_newest) and closed.issuperset(of_newest)


def _boots(run: str | os.PathLike[str]) -> tuple[dict[tuple[int, int], str], dict[str, int]]:
    """The boot of every table, and by boot how far the wall clock is ahead of its own, at the first moment that is known."""
    boots: dict[tuple[int, int], str] = {}
    first: dict[str, tuple[int, int]] = {}
    for anchor in read_anchors(run):
        boots.setdefault((anchor.life, anchor.rank), anchor.boot_id)
        ahead = (anchor.boottime, anchor.wall - anchor.boottime)
        first[anchor.boot_id] = min(first.get(anchor.boot_id, ahead), ahead)
    return boots, {boot: ahead for boot, (_, ahead) in first.items()}


#: What sums are kept of: counts that only grow.
_SUMMED = ("tokens", "padding", "bytes_read")


def _sums(table: StepRows, is_old: Flags) -> dict[str, int]:
    """Over rows that were thinned and rows that were exported before."""
    sums = {"rows": int(np.asarray(table.rolled["rows"]).sum()) if "rows" in table.rolled else 0}
    sums["rows"] += int(is_old.sum())
    names = [name for name in table.columns if name in _SUMMED or name.startswith("host.")]
    for name in names:
        pieces = [table.columns[name][is_old], table.rolled.get(name, np.empty(0, np.int64))]
        sums[name] = sum(int(piece[piece != UNMEASURED].sum()) for piece in pieces)
    return sums
