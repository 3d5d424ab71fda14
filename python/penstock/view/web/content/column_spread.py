"""Columns at a glance: how the values of every field are spread, from rows taken evenly from the whole version.

Each bar comes with the expression that filters its rows, in the language of recipes, so that a click can ask for them.
Small versions are read whole; of larger ones the page says how many rows stand for how many.
"""

import keyword
import math
import time
from collections import Counter
from typing import Any

import numpy as np

from penstock.registry import Version
from penstock.view.web.content.cells import safe
from penstock.view.wire.dataset_answers import ColumnBar, ColumnSpread, VersionSpread

ROWS_MAX = 2_048
STRETCHES = 64
"""Rows are read in so many stretches: neighbours come cheap, and the whole version is touched."""
SECONDS_MAX = 3.0
BARS = 24
CHOICES_MAX = 12
_FIELDS_MAX = 200
_VALUE_MAX = 60


def spread(version: Version) -> VersionSpread:
    """A histogram for every field, and how many rows it was made from."""
    rows = []
    deadline = time.monotonic() + SECONDS_MAX
    stretches = _stretches(version.rows)
    for numbers in stretches:
        rows += version.take(numbers)
        if time.monotonic() > deadline:
            break
    fields = [
        column(field.name, [row.get(field.name) for row in rows]) for field in version.schema[:_FIELDS_MAX]
    ]
    return {
        "columns": fields,
        "columns_left_out": max(0, len(version.schema) - _FIELDS_MAX),
        "looked_at": len(rows),
        "rows": version.rows,
    }


def _stretches(rows: int) -> list[range]:
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


def column(name: str, values: list[Any]) -> ColumnSpread:
    """How the values of one field are spread: choices, numbers, or lengths."""
    present = [value for value in values if value is not None]
    term = name if name.isidentifier() and not keyword.iskeyword(name) else None
    result: ColumnSpread = {
        "name": safe(name),
        "missing": len(values) - len(present),
        "of": "nothing",
        "bars": [],
    }
    if not present:
        return result
    if all(isinstance(value, str | bool) for value in present):
        counts = Counter(present)
        if len(counts) <= CHOICES_MAX and all(len(str(value)) <= _VALUE_MAX for value in counts):
            return {**result, "of": "values", "bars": _choices(term, counts)}
    if all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in present):
        numbers = np.array([float(value) for value in present], dtype=np.float64)
        fine = numbers[np.isfinite(numbers)]
        result["not_finite"] = len(numbers) - len(fine)
        whole = all(isinstance(value, int | np.integer) for value in present)
        return _with_bars({**result, "of": "numbers"}, term, fine, whole=whole)
    sized = [len(value) for value in present if hasattr(value, "__len__") and _has_length(value)]
    if not sized:
        return result
    lengths = np.array(sized, dtype=np.float64)
    inner = None if term is None else f"len({term})"
    return _with_bars({**result, "of": "lengths"}, inner, lengths, whole=True)


def _has_length(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.ndim > 0


def _choices(term: str | None, counts: "Counter[Any]") -> list[ColumnBar]:
    return [
        {
            "label": safe(str(value)) if isinstance(value, str) else str(value).lower(),
            "count": count,
            "where": None if term is None else f"{term} == {value!r}",
        }
        for value, count in counts.most_common()
    ]


def _with_bars(
    result: ColumnSpread, term: str | None, numbers: "np.ndarray[Any, Any]", *, whole: bool
) -> ColumnSpread:
    if not len(numbers):
        return result
    low, high = float(numbers.min()), float(numbers.max())
    edges = _edges(low, high, whole=whole)
    counts = np.histogram(numbers, bins=edges)[0]
    bars: list[ColumnBar] = []
    for at, count in enumerate(counts.tolist()):
        first, end = _text(edges[at], whole=whole), _text(edges[at + 1], whole=whole)
        last = at == len(counts) - 1
        where = None if term is None else f"{first} <= {term} {'<=' if last else '<'} {end}"
        bars.append({"label": f"{first} – {end}", "count": count, "where": where})
    return {**result, "low": low, "high": high, "median": float(np.median(numbers)), "bars": bars}


def _edges(low: float, high: float, *, whole: bool) -> list[float]:
    """Where bars begin and end; those of whole numbers stand between whole numbers."""
    if low == high:
        return [low, high]
    if not whole:
        return [low + (high - low) * at / BARS for at in range(BARS)] + [high]
    step = max(1, math.ceil((high - low) / BARS))
    return [float(edge) for edge in range(int(low), int(high), step)] + [high]


def _text(value: float, *, whole: bool) -> str:
    return str(int(value)) if whole else repr(value)
