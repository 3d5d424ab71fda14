"""Cutting a box into parts that are not too large and whose bytes follow one another."""

from collections.abc import Iterator
from math import prod

from penstock.state.contract import Box


def cut(box: Box, item_bytes: int, most: int) -> Iterator[tuple[Box, int]]:
    """Parts of a box in C order, each with its first byte in the box; together they are the box.

    Whole rows where rows are small enough, else parts of a row. A single element may be larger than ``most``; a box without
    elements is one part.
    """
    yield from _cut(box, 0, item_bytes, max(most, item_bytes), 0)


def _cut(box: Box, dimension: int, item_bytes: int, most: int, start: int) -> Iterator[tuple[Box, int]]:
    """The same for a box that is one row thick in all dimensions before the given one."""
    if box.elements * item_bytes <= most or dimension == len(box.shape):
        yield box, start
        return
    row_bytes = prod(box.shape[dimension + 1 :]) * item_bytes
    rows = max(1, most // row_bytes)
    for first in range(0, box.shape[dimension], rows):
        count = min(rows, box.shape[dimension] - first)
        offset, shape = list(box.offset), list(box.shape)
        offset[dimension] += first
        shape[dimension] = count
        part = Box(tuple(offset), tuple(shape))
        yield from _cut(part, dimension + 1, item_bytes, most, start + first * row_bytes)
