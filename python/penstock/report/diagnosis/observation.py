"""What rules look at: columns of the steps that count, with the same steps on every rank, and the ledger.

A column is named as in the step table: ``host.data``, ``device.idle``, ``tokens``. A value that was not measured is ``UNMEASURED``; a
column of which no value was measured is as good as absent (O7).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from penstock.observe.steps import StackSample
from penstock.observe.steps.compile_file import CompileSpan, stretches_of
from penstock.report.accounts.ledger import Ledger
from penstock.report.accounts.timeline import UNMEASURED, Times

#: Of the steps; with more of them without marks the device's columns are as good as absent.
_UNMARKED_MAX = 0.05
_NOTHING: Times = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RankSteps:
    """Steps of a rank that count, in order. ``step``, ``begin``, ``end`` and ``life`` are always there."""

    rank: int
    columns: dict[str, Times]

    @property
    def times(self) -> Times:
        """From the begin of a step to the begin of the next; of the last in a life, to its end."""
        begin, end, life = self.columns["begin"], self.columns["end"], self.columns["life"]
        until = end.copy()
        follows = (life[1:] == life[:-1]) & (self.columns["step"][1:] == self.columns["step"][:-1] + 1)
        until[:-1] = np.where(follows, begin[1:], end[:-1])
        return np.asarray(until - begin)

    def chosen(self, keep: np.ndarray) -> "RankSteps":
        """Some of them."""
        return RankSteps(self.rank, {name: column[keep] for name, column in self.columns.items()})


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """A run, or some steps of it."""

    ranks: tuple[RankSteps, ...]
    #: Nanoseconds that costs are shares of.
    wall: int
    #: None where only some steps are looked at.
    ledger: Ledger | None = None
    stacks: tuple[StackSample, ...] = ()
    #: Rows that were recorded and lost, and what else is wrong with them.
    lost_rows: int = 0
    faults: tuple[str, ...] = ()
    #: What was compiled while steps went on.
    compiles: tuple[CompileSpan, ...] = ()
    #: Times of steps by rank, cut to the steps that all ranks have.
    times: Times = field(default_factory=lambda: np.empty((0, 0), np.int64))

    @property
    def steps(self) -> Times:
        """Numbers of the steps."""
        return self.ranks[0].columns["step"] if self.ranks else np.empty(0, np.int64)

    @property
    def is_first(self) -> np.ndarray:
        """Which of them are the first of a life."""
        life = self.ranks[0].columns["life"]
        return np.concatenate([[True], life[1:] != life[:-1]]) if len(life) else np.empty(0, bool)

    @property
    def usual(self) -> int:
        """The median step time, over all ranks."""
        return int(np.median(self.times)) if self.times.size else 0

    def matrix(self, name: str) -> Times | None:
        """A column of all ranks as rows; None unless every rank measured all of it.

        Of the device's columns a few steps may be missing, such as the last ones, whose marks were not over; they stand as 0.
        """
        columns = [rank.columns[name] for rank in self.ranks if name in rank.columns]
        if not columns or len(columns) < len(self.ranks):
            return None
        values = np.stack(columns)
        is_missing = values == UNMEASURED
        if not is_missing.any():
            return values
        few = _UNMARKED_MAX * values.size if name.startswith("device.") else 0
        return np.where(is_missing, 0, values) if is_missing.sum() <= few else None

    def middle(self, name: str) -> Times | None:
        """A column of the rank in the middle, step by step: what one slow rank does is not in it."""
        values = self.matrix(name)
        return None if values is None else middle_of(values)

    @property
    def compiled_ns(self) -> int:
        """How long each rank compiled, in the mean."""
        spans: dict[tuple[int, int], list[CompileSpan]] = {}
        for span in self.compiles:
            spans.setdefault((span.life, span.rank), []).append(span)
        stretches = [stretch for of_rank in spans.values() for stretch in stretches_of(of_rank)]
        return sum(end - begin for begin, end in stretches) // max(1, len(self.ranks))

    def counted(self, name: str) -> int:
        """The sum of a count over all ranks and steps; rows without one have none."""
        columns = [rank.columns[name] for rank in self.ranks if name in rank.columns]
        return sum(int(column[column != UNMEASURED].sum()) for column in columns)

    def increments(self, name: str) -> Times | None:
        """How much a counter grew in each step, of all ranks as rows; None where a rank never looked at it.

        What a life begins with was counted before its first step. A step without a look has the count of the look before it.
        """
        rows = []
        for rank in self.ranks:
            column = rank.columns.get(name, _NOTHING)
            is_known = column != UNMEASURED
            if not is_known.any():
                return None
            grown = np.zeros(len(column), np.int64)
            for life in np.unique(rank.columns["life"]).tolist():
                looks = np.flatnonzero(is_known & (rank.columns["life"] == life))
                grown[looks[1:]] = np.maximum(np.diff(column[looks]), 0)
            rows.append(grown)
        return np.stack(rows) if rows else None

    def stages(self) -> list[str]:
        """Stages of the feed that rows have a column for, and that were measured in some step."""
        names = {name for rank in self.ranks for name in rank.columns if name.startswith("feed.")}
        return sorted(
            name.removeprefix("feed.")
            for name in names
            if any((rank.columns.get(name, _NOTHING) != UNMEASURED).any() for rank in self.ranks)
        )

    def measured(self, name: str) -> int:
        """The sum of a column over ranks and steps, as far as it was measured."""
        columns = [rank.columns[name] for rank in self.ranks if name in rank.columns]
        return sum(int(column[column != UNMEASURED].sum()) for column in columns)

    def names(self, prefix: str) -> list[str]:
        """Columns that begin like this, without the beginning, and that every rank measured."""
        if not self.ranks:
            return []
        named = [name for name in self.ranks[0].columns if name.startswith(prefix)]
        return [name.removeprefix(prefix) for name in sorted(named) if self.matrix(name) is not None]


def middle_of(values: Times) -> Times:
    """The lower median over ranks, as a whole number."""
    middle = (len(values) - 1) // 2
    return np.asarray(np.partition(values, middle, axis=0)[middle])


def middle_of_others(values: Times) -> Times:
    """For each of two or more ranks the lower median of all others, step by step.

    Of ordered values, one that stands at or before the middle of the others moves that middle one place up when it is left out.
    """
    middle = (len(values) - 2) // 2
    ordered = np.partition(values, (middle, middle + 1), axis=0)
    return np.asarray(np.where(values <= ordered[middle], ordered[middle + 1], ordered[middle]))


def observation_of(
    ranks: Sequence[RankSteps],
    wall: int,
    ledger: Ledger | None = None,
    stacks: Sequence[StackSample] = (),
    lost_rows: int = 0,
    faults: Sequence[str] = (),
) -> Observation:
    """Cut ranks to the steps that all of them have."""
    ordered = sorted(ranks, key=lambda rank: rank.rank)
    if not ordered:
        return Observation((), wall, ledger, tuple(stacks), lost_rows, tuple(faults))
    columns = [rank.columns["step"] for rank in ordered]
    if all(np.array_equal(column, columns[0]) for column in columns[1:]):
        # As in most runs: nothing to cut.
        whole = np.stack([rank.times for rank in ordered])
        return Observation(tuple(ordered), wall, ledger, tuple(stacks), lost_rows, tuple(faults), times=whole)
    common = reduce(np.intersect1d, columns)
    masks = [np.isin(rank.columns["step"], common) for rank in ordered]
    times = [rank.times[mask] for rank, mask in zip(ordered, masks, strict=True)]
    cut = tuple(rank.chosen(mask) for rank, mask in zip(ordered, masks, strict=True))
    return Observation(cut, wall, ledger, tuple(stacks), lost_rows, tuple(faults), times=np.stack(times))
