"""The steps of a run that count, of all ranks: columns of whole numbers from its timelines, scalars from its rows, or its records."""

import os
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from penstock.errors import PenstockError
from penstock.observe.steps import StepRows, read_steps
from penstock.report.accounts.timeline import UNMEASURED, Times
from penstock.report.curves.buckets import Values
from penstock.report.diagnosis.observation import RankSteps
from penstock.run.journal import step_records as records

SCALAR = "scalar."
#: What every table has, and what says nothing by itself.
_OWN = ("step", "begin", "end", "life")
#: Stands for every number of a program that is none, so that NaN is left for what it did not give.
NOT_FINITE = np.inf
#: The column of how long steps took.
STEP_TIME = "step_time"


@dataclass(frozen=True, eq=False)
class RunSteps:
    """Ranks may have different steps, as after a restart with fewer of them."""

    ranks: tuple[RankSteps, ...] = ()
    #: Numbers that the program gave, by rank and name; NaN where it gave none, ``NOT_FINITE`` where that is not finite.
    scalars: dict[int, dict[str, Values]] = field(default_factory=dict)

    @cached_property
    def steps(self) -> Times:
        """Numbers of the steps that any rank has."""
        columns = [rank.columns["step"] for rank in self.ranks]
        # Ranks mostly have the same steps, which need not be sorted together.
        if columns and all(np.array_equal(column, columns[0]) for column in columns[1:]):
            return columns[0]
        return np.unique(np.concatenate(columns)) if columns else np.empty(0, np.int64)

    @cached_property
    def names(self) -> list[str]:
        """Columns of which some rank measured something."""
        names = {STEP_TIME} if self.ranks else set()
        for rank in self.ranks:
            names |= {
                name
                for name, column in rank.columns.items()
                if name not in _OWN and name not in names and (column != UNMEASURED).any()
            }
            names |= set(self.scalars.get(rank.rank, ()))
        return sorted(names)

    def column(self, rank: RankSteps, name: str) -> Values | None:
        """A column of a rank; what was not measured is NaN."""
        if name == STEP_TIME:
            return rank.times.astype(np.float64)
        if name in self.scalars.get(rank.rank, {}):
            return self.scalars[rank.rank][name]
        column = rank.columns.get(name)
        return None if column is None else np.where(column == UNMEASURED, np.nan, column.astype(np.float64))

    def across(self, name: str) -> "AcrossRanks":
        """A column step by step, over the ranks that have the step."""
        steps = self.steps
        low, high = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
        total, count = np.zeros(len(steps)), np.zeros(len(steps))
        not_finite = 0
        for rank in self.ranks:
            values = self.column(rank, name)
            if values is None:
                continue
            places = np.searchsorted(steps, rank.columns["step"])
            is_known = ~np.isnan(values)
            not_finite += int(np.isinf(values).sum())
            low[places], high[places] = np.fmin(low[places], values), np.fmax(high[places], values)
            total[places] += np.where(is_known, values, 0.0)
            count[places] += is_known
        with np.errstate(invalid="ignore"):
            mean = np.divide(total, count, out=np.full(len(steps), np.nan), where=count > 0)
        return AcrossRanks(low, high, mean, np.where(count > 0, total, np.nan), not_finite)


@dataclass(frozen=True, slots=True, eq=False)
class AcrossRanks:
    """Values step by step; NaN where no rank has one."""

    low: Values
    high: Values
    mean: Values
    total: Values
    not_finite: int


def run_steps(run: str | os.PathLike[str], ranks: tuple[RankSteps, ...]) -> RunSteps:
    """Columns of the steps that count, in order of ranks, with what the program gave in them."""
    tables: dict[int, dict[int, StepRows]] = {}
    for table in read_steps(run):
        tables.setdefault(table.rank, {})[table.life] = table
    scalars = {rank.rank: _scalars(rank, tables.get(rank.rank, {})) for rank in ranks}
    if ranks and not any(scalars.values()):
        scalars = _recorded_losses(run, ranks)
    return RunSteps(ranks, scalars)


def _scalars(rank: RankSteps, tables: dict[int, StepRows]) -> dict[str, Values]:
    """Rows are found again by life and begin, which no two of them share."""
    names = sorted({name for table in tables.values() for name in table.columns if name.startswith(SCALAR)})
    columns = {name.removeprefix(SCALAR): np.full(len(rank.columns["step"]), np.nan) for name in names}
    for life, table in tables.items():
        places = np.flatnonzero(rank.columns["life"] == life)
        order = np.argsort(table.columns["begin"], kind="stable")
        begins = table.columns["begin"][order]
        if not len(places) or not len(begins):
            continue
        rows = np.minimum(np.searchsorted(begins, rank.columns["begin"][places]), len(begins) - 1)
        is_same = begins[rows] == rank.columns["begin"][places]
        for name in names:
            if name in table.columns:
                values = np.asarray(table.columns[name][order][rows], np.float64)
                numbers = np.where(np.isfinite(values), values, NOT_FINITE)
                columns[name.removeprefix(SCALAR)][places] = np.where(
                    is_same & (values != UNMEASURED), numbers, np.nan
                )
    return {name: column for name, column in columns.items() if not np.isnan(column).all()}


def _recorded_losses(
    run: str | os.PathLike[str], ranks: tuple[RankSteps, ...]
) -> dict[int, dict[str, Values]]:
    """Of a run from before rows were recorded, or with rows switched off: the losses of its records."""
    losses: dict[int, dict[str, Values]] = {}
    for rank in ranks:
        try:
            steps = records.read_rank(run, rank.rank)
        except PenstockError:
            continue
        known = {step: record.loss for step, record in steps.items()}
        column = np.array([known.get(step, np.nan) for step in rank.columns["step"].tolist()], np.float64)
        if not np.isnan(column).all():
            losses[rank.rank] = {"loss": column}
    return losses
