"""Nested spans as pieces that do not overlap: the innermost span has the time."""

from dataclasses import dataclass

import numpy as np

from penstock.report.accounts.account_names import CODE, PART_CODE
from penstock.report.accounts.timeline import Spans, Times, no_times

#: Deeper ones are no spans of a program that a person wrote.
DEPTH_MAX = 64


class SpansCross(Exception):
    """Two spans overlap and neither lies inside the other; or they are nested too deeply."""

    def __init__(self, first: int, second: int, reason: str) -> None:
        self.first, self.second, self.reason = first, second, reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """In order, none over another."""

    begins: Times
    ends: Times
    codes: Times


def pieces_of(spans: Spans) -> Pieces:
    """Cut spans where others lie inside of them."""
    if not spans.names:
        return Pieces(no_times(), no_times(), no_times())
    order = np.lexsort((-spans.ends, spans.begins)).tolist()
    begins, ends = spans.begins.tolist(), spans.ends.tolist()
    codes = [PART_CODE.get(name, CODE.get(name, -1)) for name in spans.names]
    pieces: list[tuple[int, int, int]] = []
    open_spans: list[int] = []
    cursor = 0

    def spend(until: int) -> None:
        nonlocal cursor
        if until > cursor:
            pieces.append((cursor, until, codes[open_spans[-1]]))
        cursor = until

    for span in order:
        while open_spans and ends[open_spans[-1]] <= begins[span]:
            spend(ends[open_spans[-1]])
            open_spans.pop()
        if open_spans:
            if ends[open_spans[-1]] < ends[span]:
                raise SpansCross(open_spans[-1], span, "neither lies inside the other")
            if len(open_spans) == DEPTH_MAX:
                raise SpansCross(
                    open_spans[-1], span, f"more than {DEPTH_MAX} spans lie inside of one another"
                )
            spend(begins[span])
        cursor = begins[span]
        open_spans.append(span)
    while open_spans:
        spend(ends[open_spans[-1]])
        open_spans.pop()
    columns = np.array(pieces, np.int64).reshape(-1, 3)
    return Pieces(columns[:, 0], columns[:, 1], columns[:, 2])
