"""Columns at a glance, as pages show them: what ``report.histogram`` says of every field.

Each bar comes with the expression that filters its rows, in the language of recipes, so that a click can ask for them.
"""

import keyword

from penstock.registry import Version
from penstock.report.histogram import ColumnHistogram, histograms
from penstock.view.web.content.cells import safe
from penstock.view.wire.dataset_answers import ColumnBar, ColumnSpread, VersionSpread


def spread(version: Version) -> VersionSpread:
    """A histogram for every field, and how many rows it was made from."""
    result = histograms(version)
    return {
        "columns": [_column(column) for column in result.columns],
        "columns_left_out": result.columns_left_out,
        "looked_at": result.looked_at,
        "rows": result.rows,
    }


def _column(column: ColumnHistogram) -> ColumnSpread:
    term = column.name if column.name.isidentifier() and not keyword.iskeyword(column.name) else None
    answer: ColumnSpread = {
        "name": safe(column.name),
        "missing": column.missing,
        "of": column.of,
        "bars": _choices(term, column) if column.of == "values" else _bins(term, column),
    }
    if column.not_finite is not None:
        answer["not_finite"] = column.not_finite
    if column.low is not None and column.high is not None and column.median is not None:
        answer |= {"low": column.low, "high": column.high, "median": column.median}
    return answer


def _choices(term: str | None, column: ColumnHistogram) -> list[ColumnBar]:
    return [
        {
            "label": safe(value) if isinstance(value, str) else str(value).lower(),
            "count": count,
            "where": None if term is None else f"{term} == {value!r}",
        }
        for value, count in column.choices
    ]


def _bins(term: str | None, column: ColumnHistogram) -> list[ColumnBar]:
    if term is not None and column.of == "lengths":
        term = f"len({term})"
    bars: list[ColumnBar] = []
    for at, bin_ in enumerate(column.bins):
        first, end = _text(bin_.first, whole=column.whole), _text(bin_.end, whole=column.whole)
        last = at == len(column.bins) - 1
        where = None if term is None else f"{first} <= {term} {'<=' if last else '<'} {end}"
        bars.append({"label": f"{first} – {end}", "count": bin_.count, "where": where})
    return bars


def _text(value: float, *, whole: bool) -> str:
    return str(int(value)) if whole else repr(value)
