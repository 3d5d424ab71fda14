"""How long starts, loads, saves and steps of a run take: medians of what it recorded, for whoever imagines a larger one."""

import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.report.accounts.ledger import ledger_from
from penstock.report.accounts.timeline import RankTimeline, StepColumns
from penstock.report.run_evidence import evidence_of

#: Accounts of a life before its ranks train.
_START = ("spawn", "start", "rendezvous", "compile")
_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Seconds; None for what the run did not record."""

    start_s: float | None
    load_s: float | None
    save_s: float | None
    step_s: float | None


def run_times(run: str | os.PathLike[str]) -> RunTimes:
    """Of a run, from its records."""
    return times_of(evidence_of(run).timelines)


def times_of(timelines: Sequence[RankTimeline]) -> RunTimes:
    """Of all lives: the slowest rank counts, because the others wait for it. Pure."""
    starts: dict[int, int] = {}
    loads: dict[int, int] = {}
    for rank in ledger_from(timelines).ranks:
        for life in rank.lives:
            start = sum(life.accounts[name] for name in _START)
            starts[life.number] = max(start, starts.get(life.number, 0))
            loads[life.number] = max(life.accounts["restore"], loads.get(life.number, 0))
    steps = [life.steps for one in timelines for life in one.lives]
    lengths = [(columns.ends - columns.begins) / columns.counts for columns in steps if len(columns.ends)]
    return RunTimes(
        start_s=_median(starts.values()),
        load_s=_median(loads.values()),
        save_s=_median(int(value) for columns in steps for value in _saves(columns)),
        step_s=float(np.median(np.concatenate(lengths))) / _SECOND if lengths else None,
    )


def _saves(columns: StepColumns) -> Iterable[int]:
    """What training stood still for in steps that saved."""
    waits = columns.parts.get("checkpoint")
    return [] if waits is None else [int(wait) for wait in waits if wait > 0]


def _median(values: Iterable[int]) -> float | None:
    known = [value for value in values if value > 0]
    return statistics.median(known) / _SECOND if known else None
