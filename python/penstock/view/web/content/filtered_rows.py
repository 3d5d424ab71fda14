"""Rows that pass an expression, found by reading: the number of rows looked at is always said.

There is no index, so a question looks at rows from a place on, until enough have passed, enough were read, or enough time
is over; the answer says where to go on. The expression is the recipe's own small language, which cannot reach any file.
"""

import time
from dataclasses import dataclass, field

from penstock.data.plan.row_filter import RowFilter, bind_filter, check_inner_fields
from penstock.formats.contract import Row
from penstock.registry import Version

CHUNK_ROWS = 256
LOOKED_AT_MAX = 50_000
SECONDS_MAX = 2.0


@dataclass
class Passed:
    """What one look found."""

    #: Row numbers that pass, and the rows themselves.
    numbers: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    looked_at: int = 0
    #: Where to go on; None when the last row was looked at.
    following: int | None = None
    #: Rows on which the expression could not be computed, and why the first could not.
    failed: int = 0
    reason: str = ""


def passing(version: Version, where: str, *, start: int, count: int) -> Passed:
    """Rows from `start` on that pass, at most `count` of them."""
    judge = bind_filter(where, version)
    check_inner_fields(where, version, all_rows=False)
    passed = Passed()
    at = start
    deadline = time.monotonic() + SECONDS_MAX
    while at < version.rows and len(passed.numbers) < count:
        # One chunk is always read, so that every look gets on.
        if passed.looked_at >= LOOKED_AT_MAX or (passed.looked_at and time.monotonic() > deadline):
            break
        end = min(version.rows, at + CHUNK_ROWS)
        at = _look(version, judge, range(at, end), count, passed)
    passed.following = at if at < version.rows else None
    return passed


def _look(version: Version, judge: RowFilter, numbers: range, count: int, passed: Passed) -> int:
    """Look at a chunk; the row after the last one looked at."""
    for number, row in zip(numbers, version.take(numbers), strict=True):
        passed.looked_at += 1
        try:
            passes = judge(row, number)
        except (TypeError, ValueError, ArithmeticError, AttributeError) as reason:
            passed.failed += 1
            passed.reason = passed.reason or f"row {number}: {reason}"
            continue
        if passes:
            passed.numbers.append(number)
            passed.rows.append(row)
            if len(passed.numbers) >= count:
                return number + 1
    return numbers.stop
