"""Replicas are written once: what several ranks hold in common is divided among them.

Every rank computes the same division from what it knows of itself: the k-th of n replicas takes the k-th n-th of the rows of a
box, or, where there are too few rows or too few bytes to divide, one of them takes all.
"""

from dataclasses import dataclass

from penstock._rust import digest
from penstock.state.contract import ITEM_BYTES, Box, Held

#: Smaller parts are not worth a file range of their own.
_PART_BYTES_MIN = 1 << 20


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank writes of a box that it holds."""

    held: Held
    box: Box
    #: First byte of it in the held box.
    start: int

    @property
    def bytes(self) -> int:
        """How many bytes that is."""
        return self.box.elements * ITEM_BYTES[self.held.dtype]


def share_of(held: Held) -> Share | None:
    """What this rank writes of what it holds; nothing, if another replica does."""
    whole = Share(held, held.box, 0)
    if held.replicas == 1:
        return whole
    rows = held.box.shape[0] if held.box.shape else 1
    if rows < held.replicas or held.bytes < _PART_BYTES_MIN * held.replicas:
        # The same one on every rank, and different ones for different tensors.
        writer = int(digest(held.name.encode())[3:19], 16) % held.replicas
        return whole if held.replica == writer else None
    first, end = (rows * k // held.replicas for k in (held.replica, held.replica + 1))
    return rows_of(held, first, end)


def parts_of(share: Share, most: int) -> list[Share]:
    """A share in parts of whole rows of at most so many bytes, as far as rows are that small."""
    rows = share.box.shape[0] if share.box.shape else 1
    if share.bytes <= most or rows <= 1:
        return [share]
    step = max(1, rows * most // share.bytes)
    before = share.box.offset[0] - share.held.box.offset[0]
    return [
        rows_of(share.held, before + first, before + min(rows, first + step))
        for first in range(0, rows, step)
    ]


def rows_of(held: Held, first: int, end: int) -> Share:
    """Some rows (along the first dimension) of a held box; they lie in memory in one piece."""
    box = held.box
    row_bytes = held.bytes // box.shape[0] if box.shape[0] else 0
    offset = (box.offset[0] + first, *box.offset[1:])
    return Share(held, Box(offset, (end - first, *box.shape[1:])), first * row_bytes)
