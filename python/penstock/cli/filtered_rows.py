"""Rows of a version for which an expression holds, as lines and as JSON.

There is no index, so a filter reads. Without ``--all`` it stops after some thousand rows and says where to continue; with it, it reads
every row of the range, prints what passes as it comes, and tells on stderr how far it is.
"""

from collections.abc import Iterator
from typing import Any

from penstock.cli.progress import progress
from penstock.view.bounds import parse_bounds
from penstock.view.model.filter import LOOKED_MAX, Filtered, filter_rows
from penstock.view.opener import OpenedVersion
from penstock.view.text import ROWS, row_lines

#: Rows that JSON has unless others are asked for.
_ROWS_OF_JSON = 64


def filtered_lines(
    opened: OpenedVersion, where: str, rows: str | None, *, everything: bool = False
) -> Iterator[str]:
    """Rows that pass, and how many were looked at."""
    if everything:
        passed = looked = failed = 0
        problem = ""
        for page in _scan(opened, where, rows):
            for row in opened.chosen(page.rows):
                yield from row_lines(row)
            passed, looked, failed = passed + len(page.rows), looked + page.looked, failed + page.failed
            problem = problem or page.problem
        yield _summary(passed, looked, failed, problem)
        return
    first, count = _page(opened, rows, ROWS)
    page = filter_rows(opened, where, first=first, count=count)
    for row in opened.chosen(page.rows):
        yield from row_lines(row)
    more = ""
    if page.next is not None:
        more = f"; go on with --rows {page.next}:{page.next + count}, or look at all with --all"
    yield _summary(len(page.rows), page.looked, page.failed, page.problem) + more


def filtered_document(
    opened: OpenedVersion, where: str, rows: str | None, *, everything: bool = False
) -> dict[str, Any]:
    """The same as plain values."""
    if everything:
        pages = list(_scan(opened, where, rows))
    else:
        first, count = _page(opened, rows, _ROWS_OF_JSON)
        pages = [filter_rows(opened, where, first=first, count=count)]
    return {
        "rows": [row.to_json() for page in pages for row in opened.chosen(page.rows)],
        "looked": sum(page.looked for page in pages),
        "next": None if everything else pages[-1].next,
        "failed": sum(page.failed for page in pages),
    }


def _page(opened: OpenedVersion, rows: str | None, count: int) -> tuple[int, int]:
    """Where to begin, and how many rows are wanted."""
    if rows is None:
        return 0, count
    bounds = parse_bounds(rows)
    first, stop = bounds.within(opened.rows)
    # The end says how many are wanted, so that it may lie after the last row.
    return first, max(stop, bounds.stop or 0) - first


def _scan(opened: OpenedVersion, where: str, rows: str | None) -> Iterator[Filtered]:
    """Look at every row of a range, some thousand at a time."""
    first, stop = (0, opened.rows) if rows is None else parse_bounds(rows).within(opened.rows)
    with progress("looking", "rows") as tell:
        at = first
        while at < stop:
            count = min(LOOKED_MAX, stop - at)
            yield filter_rows(opened, where, first=at, count=count, looked_max=count)
            at += count
            tell(at - first, stop - first)


def _summary(passed: int, looked: int, failed: int, problem: str) -> str:
    said = f", {failed:,} of which it says nothing ({problem})" if failed else ""
    return f"{passed:,} rows of the {looked:,} that were looked at{said}"
