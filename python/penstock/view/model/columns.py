"""Columns of a version at a glance: histograms of fields, and the rows for which an expression holds.

Both look at a bounded number of rows and say how many. A histogram looks at rows spread evenly over the version; a filter at rows one
after another, from where the last page ended.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.data.plan.row_filter import bind_filter, check_inner_fields
from penstock.errors import UsageError
from penstock.view.model.rows import VersionView
from penstock.view.model.tokens.glyphs import safe_line

#: Rows that are looked at for one answer.
LOOKED_MAX = 10_000
_BINS = 24
_VALUES_MAX = 24
_PAGE = 500
_SHORT = 80


@dataclass(frozen=True, slots=True)
class Filtered:
    """Rows that an expression keeps."""

    rows: list[int]
    #: How many rows were looked at, and the first that was not.
    looked: int
    next: int | None
    #: Rows of which the expression makes no sense, and what it said of the first.
    failed: int
    problem: str


def histograms(
    view: VersionView, names: list[str] | None = None, *, looked_max: int = LOOKED_MAX
) -> dict[str, Any]:
    """A histogram of every field, or of some."""
    count = min(view.rows, looked_max)
    numbers = (
        np.unique(np.linspace(0, view.rows - 1, count).astype(np.int64)) if count else np.zeros(0, np.int64)
    )
    chosen = names or [field.name for field in view.version.schema]
    values: dict[str, list[Any]] = {name: [] for name in chosen}
    for first in range(0, len(numbers), _PAGE):
        for row in view.version.take(numbers[first : first + _PAGE]):
            for name in chosen:
                values[name].append(row.get(name))
    return {
        "rows": view.rows,
        "looked": len(numbers),
        "columns": {name: _histogram(name, column) for name, column in values.items()},
    }


def filter_rows(
    view: VersionView, text: str, *, first: int = 0, count: int = 50, looked_max: int = LOOKED_MAX
) -> Filtered:
    """The next rows for which an expression holds."""
    if first < 0 or count < 1:
        raise UsageError(f"first must be 0 or more and count at least 1, got {first} and {count}")
    judge = bind_filter(text, view.version)
    check_inner_fields(text, view.version, all_rows=False)
    numbers: list[int] = []
    failed, problem = 0, ""
    at, stop = first, min(view.rows, first + looked_max)
    while at < stop and len(numbers) < count:
        page = range(at, min(stop, at + _PAGE))
        for number, row in zip(page, view.version.take(page), strict=True):
            at = number + 1
            try:
                holds = judge(row, number)
            except (TypeError, ValueError, ArithmeticError, LookupError) as reason:
                failed, problem = failed + 1, problem or f"row {number}: {reason}"
                continue
            if holds:
                numbers.append(number)
                if len(numbers) == count:
                    break
    return Filtered(numbers, at - first, at if at < view.rows else None, failed, problem)


def _histogram(name: str, values: list[Any]) -> dict[str, Any]:
    present = [value for value in values if value is not None]
    histogram: dict[str, Any] = {"field": name, "missing": len(values) - len(present)}
    numbers = [
        float(v) for v in present if isinstance(v, int | float | np.number) and not isinstance(v, bool)
    ]
    finite = [v for v in numbers if math.isfinite(v)]
    if finite and len(numbers) == len(present):
        return histogram | _bins("number", finite)
    if present and all(isinstance(value, bool | np.bool_ | str) for value in present):
        counts = Counter(str(value) for value in present)
        # Few different texts are a choice, many are content.
        if len(counts) <= max(_VALUES_MAX, len(present) // 20):
            common = [[safe_line(value[:_SHORT]), n] for value, n in counts.most_common(_VALUES_MAX)]
            return histogram | {"kind": "values", "values": common, "distinct": len(counts)}
        return histogram | _bins("length in characters", [float(len(value)) for value in present])
    if present and all(hasattr(value, "__len__") for value in present):
        return histogram | _bins("length", [float(len(value)) for value in present])
    return histogram | {"kind": "none"}


def _bins(what: str, values: list[float]) -> dict[str, Any]:
    counts, edges = np.histogram(values, bins=_BINS)
    return {
        "kind": what,
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "minimum": min(values),
        "median": float(np.median(values)),
        "maximum": max(values),
    }
