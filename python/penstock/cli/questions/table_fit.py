"""A table made as narrow as a terminal: columns that say nothing go first, then those that are missed least; the last column is cut. Pure.

A table that folds its cells is as narrow, and nobody can read it. In a pipe all of it is printed.
"""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

#: Between two columns.
GAP = 3
#: Of the last column at least so much is left, before a column in front of it goes.
LAST_MIN = 16
#: Where not even that can be, it goes itself, unless so much of it is left.
LAST_CUT_MIN = 6

Cells = Sequence[Sequence[str]]


def fitted(
    heads: Sequence[str], rows: Cells, *, columns: int, spare: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Heads and rows that fit; ``spare`` are the heads of columns that may go, the first of them first."""
    kept = [place for place, head in enumerate(heads) if head not in spare or any(row[place] for row in rows)]
    widths = [max(map(cell_len, (head, *(row[place] for row in rows)))) for place, head in enumerate(heads)]

    def before_last() -> int:
        return sum(widths[place] + GAP for place in kept[:-1])

    for head in spare:
        if before_last() + min(widths[kept[-1]], LAST_MIN) <= columns:
            break
        kept = [place for place in kept if heads[place] != head]
    room = columns - before_last()
    if room < max(LAST_CUT_MIN, cell_len(heads[kept[-1]])) and len(kept) > 1:
        kept, room = kept[:-1], columns
    lines = [[row[place] for place in kept] for row in rows]
    return [heads[place] for place in kept], [[*line[:-1], _cut(line[-1], room)] for line in lines]


def _cut(cell: str, room: int) -> str:
    return cell if cell_len(cell) <= room else set_cell_size(cell, room - 1).rstrip() + "…"
