"""Curves of a run over its steps: loss, speed, goodput, memory and whatever the program logged."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.report.accounts.ledger import Ledger
from penstock.report.accounts.timeline import Times
from penstock.report.curves.buckets import BUCKETS_MAX, Values, bucketed, edges_of, plain
from penstock.report.curves.step_table import STEP_TIME, AcrossRanks, RunSteps

#: Logged scalars that get a curve.
SCALARS_MAX = 60
#: Buckets of steps in a map of rank by step.
HEAT_COLUMNS_MAX = 400
#: What programs report first.
LOSS = "loss"
_MEMORY = {"rss": "process", "memory_peak": "device, peak", "memory_reserved": "device, reserved"}


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One line of a curve: a value and its range at every step that it has."""

    label: str
    mean: Values
    low: Values
    high: Values
    #: Of rates: what the mean of a bucket is the quotient of.
    quotient: tuple[Values, Values] | None = None
    not_finite: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """What is drawn in one chart."""

    name: str
    title: str
    #: ``ns``, ``bytes``, ``share``, ``rate`` or ``number``.
    unit: str
    #: What its values mean.
    says: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RunCurves:
    """All curves, over the same steps."""

    steps: Times
    curves: tuple[Curve, ...]
    left_out: int = 0

    def to_json(
        self,
        first: int | None = None,
        end: int | None = None,
        buckets_max: int = BUCKETS_MAX,
        names: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """As plain values, of the steps from ``first`` to before ``end``; with ``names`` those curves alone."""
        low = int(self.steps[0]) if len(self.steps) else 0
        high = int(self.steps[-1]) + 1 if len(self.steps) else 0
        begin = low if first is None else min(max(first, low), max(high - 1, low))
        stop = high if end is None else min(max(end, begin + 1), high)
        edges = edges_of(begin, stop, buckets_max)
        is_exact = len(edges) < 2 or (int(edges[1] - edges[0]) == 1 and len(edges) - 1 == stop - begin)
        return {
            "first": begin,
            "end": stop,
            "steps": edges[:-1].tolist(),
            "is_exact": bool(is_exact),
            "curves": [
                {
                    "name": curve.name,
                    "title": curve.title,
                    "unit": curve.unit,
                    "says": curve.says,
                    "lines": [self._line(line, edges) for line in curve.lines],
                }
                for curve in self.curves
                if names is None or curve.name in names
            ],
            "left_out": self.left_out,
        }

    def _line(self, line: Line, edges: Times) -> dict[str, Any]:
        middle = bucketed(self.steps, line.mean, edges).mean
        if line.quotient is not None:
            above, below = (bucketed(self.steps, values, edges).total for values in line.quotient)
            middle = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
        low, high = (
            bucketed(self.steps, line.low, edges).low,
            bucketed(self.steps, line.high, edges).high,
        )
        is_band = bool((low != high)[~np.isnan(low)].any())
        return {
            "label": line.label,
            "values": plain(middle),
            "low": plain(low) if is_band else None,
            "high": plain(high) if is_band else None,
            "not_finite": line.not_finite,
        }


def run_curves(steps: RunSteps, ledger: Ledger, peaks: Mapping[str, float] | None = None) -> RunCurves:
    """What the columns of a run give. A step is as long as on its slowest rank; scalars are means over ranks.

    ``peaks`` are FLOP/s by type of the device, where the run has an MFU.
    """
    names = steps.names
    scalars = sorted({name for of_rank in steps.scalars.values() for name in of_rank})
    others = [name for name in scalars if name != LOSS]
    curves = [
        *([_scalar(steps, LOSS)] if LOSS in scalars else []),
        *_speed(steps, names),
        *_mfu(steps, peaks or {}),
        *_goodput(steps, ledger),
        *_memory(steps, names),
        *(_scalar(steps, name) for name in others[:SCALARS_MAX]),
    ]
    return RunCurves(steps.steps, tuple(curves), max(0, len(others) - SCALARS_MAX))


def _scalar(steps: RunSteps, name: str) -> Curve:
    several = ", mean over ranks" if len(steps.ranks) > 1 else ""
    return Curve(name, name, "number", f"as the program gave it{several}", (_line(name, steps.across(name)),))


def _line(label: str, across: AcrossRanks) -> Line:
    return Line(label, across.mean, across.low, across.high, None, across.not_finite)


def _speed(steps: RunSteps, names: list[str]) -> list[Curve]:
    if not steps.ranks:
        return []
    times = steps.across(STEP_TIME)
    slowest = times.high
    curves = []
    if "tokens" in names:
        tokens = steps.across("tokens").total
        rates = np.divide(tokens, slowest / 1e9, out=np.full(len(tokens), np.nan), where=slowest > 0)
        is_known = ~np.isnan(tokens)
        quotient = (np.where(is_known, tokens, np.nan), np.where(is_known, slowest / 1e9, np.nan))
        line = Line("tokens/s", rates, rates, rates, quotient)
        curves.append(
            Curve("tokens_per_s", "tokens per second", "rate", "of all ranks, padding apart", (line,))
        )
    line = Line("step time", slowest, times.low, slowest)
    says = "from the begin of a step to the begin of the next" + (
        ", on the slowest rank; the band goes down to the fastest" if len(steps.ranks) > 1 else ""
    )
    return [*curves, Curve(STEP_TIME, "step time", "ns", says, (line,))]


def _mfu(steps: RunSteps, peaks: Mapping[str, float]) -> list[Curve]:
    """Useful FLOPs of all ranks over what their devices could do in the time of the step; more than all of it is not shown (O3)."""
    columns = {f"flops.useful.{dtype}": peak for dtype, peak in peaks.items()}
    ideal_s = np.zeros(len(steps.steps))
    is_counted = np.ones(len(steps.steps), bool)
    devices = np.zeros(len(steps.steps))
    for rank in steps.ranks:
        places = np.searchsorted(steps.steps, rank.columns["step"])
        devices[places] += 1
        executed = steps.column(rank, "flops_executed")
        is_counted[places] &= False if executed is None else ~np.isnan(executed)
        for name, peak in columns.items():
            values = steps.column(rank, name)
            if values is not None:
                ideal_s[places] += np.nan_to_num(values, nan=0.0) / peak
    if not peaks or not is_counted.any():
        return []
    available_s = devices * steps.across(STEP_TIME).high / 1e9
    shares = np.divide(ideal_s, available_s, out=np.full(len(ideal_s), np.nan), where=available_s > 0)
    is_shown = is_counted & (shares <= 1)
    quotient = (np.where(is_shown, ideal_s, np.nan), np.where(is_shown, available_s, np.nan))
    shares = np.where(is_shown, shares, np.nan)
    line = Line("MFU", shares, shares, shares, quotient)
    return [Curve("mfu", "MFU", "share", "useful FLOPs over the peak of all devices, step by step", (line,))]


def _goodput(steps: RunSteps, ledger: Ledger) -> list[Curve]:
    """Of the first rank: how much of the time up to each step went into steps that count."""
    if not steps.ranks:
        return []
    rank = steps.ranks[0]
    of_rank = next((one for one in ledger.ranks if one.rank == rank.rank), None)
    if of_rank is None:
        return []
    elapsed = np.full(len(rank.columns["step"]), np.nan)
    before = 0
    for life in of_rank.lives:
        is_here = rank.columns["life"] == life.number
        elapsed[is_here] = before + rank.columns["end"][is_here] - life.first
        before += life.wall
    done = np.cumsum((rank.columns["end"] - rank.columns["begin"]).astype(np.float64))
    shares = np.divide(done, elapsed, out=np.full(len(done), np.nan), where=elapsed > 0)
    values = np.full(len(steps.steps), np.nan)
    values[np.searchsorted(steps.steps, rank.columns["step"])] = shares
    says = f"share of the time up to a step that went into steps that count, rank {rank.rank}"
    return [Curve("goodput", "goodput so far", "share", says, (Line("goodput", values, values, values),))]


def _memory(steps: RunSteps, names: list[str]) -> list[Curve]:
    lines = []
    for name, label in _MEMORY.items():
        if name in names:
            across = steps.across(name)
            lines.append(Line(label, across.high, across.low, across.high))
    return [Curve("memory", "memory", "bytes", "the largest of all ranks", tuple(lines))] if lines else []


def heat_map(steps: RunSteps, name: str, columns_max: int = HEAT_COLUMNS_MAX) -> dict[str, Any]:
    """A column as rank by step: the largest value of each bucket, because that is what one looks for."""
    known = steps.steps
    edges = edges_of(int(known[0]), int(known[-1]) + 1, columns_max) if len(known) else edges_of(0, 0)
    rows: list[dict[str, Any]] = []
    for rank in steps.ranks:
        values = steps.column(rank, name)
        column = np.full(len(edges) - 1, np.nan)
        if values is not None:
            column = bucketed(rank.columns["step"], values, edges).high
        rows.append({"rank": rank.rank, "values": plain(column)})
    measured = [value for row in rows for value in row["values"] if value is not None]
    return {
        "column": name,
        "unit": unit_of(steps, name),
        "first": int(edges[0]),
        "end": int(edges[-1]),
        "steps": edges[:-1].tolist(),
        "ranks": rows,
        "low": min(measured, default=None),
        "high": max(measured, default=None),
    }


def unit_of(steps: RunSteps, name: str) -> str:
    """What a column counts."""
    if any(name in of_rank for of_rank in steps.scalars.values()):
        return "number"
    if name == STEP_TIME or name.startswith(("host.", "device.", "feed.")):
        return "ns"
    return "bytes" if name in ("bytes_read", *_MEMORY) else "number"
