"""A column of a run as rank by step, one line of the terminal for a rank or for several. Pure."""

from collections.abc import Sequence
from typing import Any

#: From the smallest value to the largest; readable without colours.
SHADES = " ░▒▓█"


def merged_ranks(heat: dict[str, Any], lines_max: int) -> list[tuple[str, list[float | None]]]:
    """Lines with their labels. Where there are more ranks than lines, neighbours share one, and the largest value of them counts."""
    ranks = heat["ranks"]
    if not ranks or lines_max < 1:
        return []
    per_line = -(-len(ranks) // lines_max)
    lines = []
    for first in range(0, len(ranks), per_line):
        group = ranks[first : first + per_line]
        label = str(group[0]["rank"]) if len(group) == 1 else f"{group[0]['rank']}-{group[-1]['rank']}"
        columns = zip(*(row["values"] for row in group), strict=True)
        lines.append((label, [_largest(column) for column in columns]))
    return lines


def shades_of(values: Sequence[float | None], low: float, high: float, width: int) -> list[int]:
    """Numbers of shades for ``width`` cells, -1 where nothing is known. Of several values of a cell the largest counts."""
    count = len(values)
    shades = []
    for cell in range(min(width, count)):
        first, end = cell * count // min(width, count), (cell + 1) * count // min(width, count)
        value = _largest(values[first:end])
        if value is None:
            shades.append(-1)
        else:
            share = (value - low) / (high - low) if high > low else 0.0
            shades.append(min(len(SHADES) - 1, int(share * len(SHADES))))
    return shades


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
