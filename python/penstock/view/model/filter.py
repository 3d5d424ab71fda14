"""The rows of a version for which an expression holds.

A filter looks at a bounded number of rows and says how many: one after another, from where the last page ended.
"""

from dataclasses import dataclass

from penstock.data.plan.row_filter import bind_filter, check_inner_fields
from penstock.errors import UsageError
from penstock.view.model.rows import VersionView

#: Rows that are looked at for one answer.
LOOKED_MAX = 10_000
_PAGE = 500


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
