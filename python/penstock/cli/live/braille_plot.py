"""Lines drawn with braille characters: two by four dots in every cell of a terminal. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

#: Dots of a cell.
DOTS_WIDE, DOTS_HIGH = 2, 4
_FIRST = 0x2800
#: Bits of the dots, by column from the top.
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class BrailleCell:
    """A character, and the number of the line that is on top in it; -1 where there is none."""

    sign: str
    line: int


def extent(lines: Sequence[Values]) -> tuple[float, float] | None:
    """The smallest and the largest value of all lines; None where there is none."""
    known = [value for values in lines for value in values if value is not None]
    return (min(known), max(known)) if known else None


def braille_rows(
    lines: Sequence[Values], width: int, height: int, low: float, high: float
) -> list[list[BrailleCell]]:
    """Rows of cells from the top. A value is a column of dots; neighbours are joined, so that a spike is a stroke.

    A later line is drawn over an earlier one.
    """
    bits = [[0] * width for _ in range(height)]
    owners = [[-1] * width for _ in range(height)]
    for number, values in enumerate(lines):
        before: int | None = None
        for column, value in enumerate(values[: width * DOTS_WIDE]):
            if value is None:
                before = None
                continue
            dot = _dot(value, low, high, height * DOTS_HIGH)
            # From next to the dot before up to this one.
            first, last = (dot, dot) if before is None else (min(dot, before), max(dot, before))
            for place in range(first, last + 1):
                row, inner = divmod(place, DOTS_HIGH)
                bits[row][column // DOTS_WIDE] |= _BITS[column % DOTS_WIDE][inner]
                owners[row][column // DOTS_WIDE] = number
            before = dot
    return [
        [
            BrailleCell(chr(_FIRST + bit) if bit else " ", owner)
            for bit, owner in zip(row, of_row, strict=True)
        ]
        for row, of_row in zip(bits, owners, strict=True)
    ]


def _dot(value: float, low: float, high: float, dots: int) -> int:
    """The row of dots of a value, from the top; values beyond the ends stand at the ends."""
    if high <= low:
        return dots // 2
    share = (min(max(value, low), high) - low) / (high - low)
    return dots - 1 - round(share * (dots - 1))
