"""Columns at a glance: how the values of every field of a version are spread, from rows taken evenly from all of it.

The one place where values become bars; screens only say them in their own words. Few different texts are choices, numbers stand in
bins, and of everything else that has a length the lengths do. Small versions are read whole.
"""

import math
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from penstock.events.quantile import quantile
from penstock.registry import Version

ROWS_MAX = 2_048
#: Rows are read in so many stretches: neighbours come cheap, and the whole version is touched.
STRETCHES = 64
SECONDS_MAX = 3.0
BINS = 24
CHOICES_MAX = 12
_FIELDS_MAX = 200
_CHOICE_CHARACTERS_MAX = 60


@dataclass(frozen=True, slots=True)
class Bin:
    """Numbers from ``first`` on and below ``end``; the last bin of a column holds ``end`` too."""

    first: float
    end: float
    count: int


@dataclass(frozen=True, slots=True)
class ColumnHistogram:
    """How the values of a field are spread. Numbers and lengths have bins, ends and a median, where any is finite."""

    name: str
    missing: int
    of: Literal["nothing", "values", "numbers", "lengths"] = "nothing"
    #: Values with how often they stand there, the most frequent first.
    choices: tuple[tuple[str | bool, int], ...] = ()
    bins: tuple[Bin, ...] = ()
    #: Whether only whole numbers are among them, so that bins begin at such.
    whole: bool = False
    #: Numbers that are in no bin; None where the values are not numbers.
    not_finite: int | None = None
    low: float | None = None
    #: By nearest rank, as every quantile: one of the values.
    median: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class VersionHistograms:
    """A histogram of every field, made of ``looked_at`` rows of all."""

    columns: tuple[ColumnHistogram, ...]
    columns_left_out: int
    looked_at: int
    rows: int


def histograms(version: Version) -> VersionHistograms:
    """Read rows of a version and look at every field of them."""
    rows = []
    deadline = time.monotonic() + SECONDS_MAX
    for numbers in _stretches(version.rows):
        rows += version.take(numbers)
        if time.monotonic() > deadline:
            break
    return VersionHistograms(
        tuple(
            histogram(column.name, [row.get(column.name) for row in rows])
            for column in version.schema[:_FIELDS_MAX]
        ),
        max(0, len(version.schema) - _FIELDS_MAX),
        len(rows),
        version.rows,
    )


def histogram(name: str, values: list[Any]) -> ColumnHistogram:
    """How the values of one field are spread: choices, numbers, or lengths. Pure."""
    present = [value for value in values if value is not None]
    column = ColumnHistogram(name, len(values) - len(present))
    if not present:
        return column
    if all(isinstance(value, str | bool | np.bool_) for value in present):
        counts = Counter(value if isinstance(value, str) else bool(value) for value in present)
        if len(counts) <= CHOICES_MAX and all(len(str(value)) <= _CHOICE_CHARACTERS_MAX for value in counts):
            return replace(column, of="values", choices=tuple(counts.most_common()))
    if all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in present):
        numbers = [float(value) for value in present]
        finite = [number for number in numbers if math.isfinite(number)]
        whole = all(isinstance(value, int | np.integer) for value in present)
        column = replace(column, of="numbers", not_finite=len(numbers) - len(finite), whole=whole)
        return _with_bins(column, finite)
    lengths = [float(len(value)) for value in present if hasattr(value, "__len__") and _has_length(value)]
    return _with_bins(replace(column, of="lengths", whole=True), lengths) if lengths else column


def _has_length(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.ndim > 0


def _with_bins(column: ColumnHistogram, numbers: list[float]) -> ColumnHistogram:
    if not numbers:
        return column
    ordered = sorted(numbers)
    edges = _edges(ordered[0], ordered[-1], whole=column.whole)
    counts = np.histogram(ordered, bins=edges)[0].tolist()
    bins = tuple(Bin(first, end, count) for first, end, count in zip(edges, edges[1:], counts, strict=False))
    return replace(column, bins=bins, low=ordered[0], median=quantile(ordered, 0.5), high=ordered[-1])


def _edges(low: float, high: float, *, whole: bool) -> list[float]:
    """Where bins begin and end; those of whole numbers stand between whole numbers."""
    if low == high:
        return [low, high]
    if not whole:
        return [low + (high - low) * at / BINS for at in range(BINS)] + [high]
    step = max(1, math.ceil((high - low) / BINS))
    return [float(edge) for edge in range(int(low), int(high), step)] + [high]


def _stretches(rows: int) -> list[range]:
    """Which rows are looked at."""
    if rows <= ROWS_MAX:
        return [range(rows)] if rows else []
    length = ROWS_MAX // STRETCHES
    # In the order of a van der Corput sequence, so that time running out still leaves an even spread.
    begins = [round(_mirrored(number) * (rows - length)) for number in range(STRETCHES)]
    return [range(begin, begin + length) for begin in begins]


def _mirrored(number: int) -> float:
    share, step = 0.0, 0.5
    while number:
        share += step * (number & 1)
        number >>= 1
        step /= 2
    return share
