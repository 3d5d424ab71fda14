"""How many pairs of a query and a key a mask lets through, in closed form; over many documents at once.

Attention costs FLOPs per pair, so this is the whole of what packing, windows and causality change. Query ``i`` of a document
with ``q`` queries and ``k`` keys stands at key ``i`` (or ``i + k - q`` where masks are aligned at the end, as flash attention
does) and sees ``left`` keys before it and ``right`` after it; None is no limit.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Lengths = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DocumentLengths:
    """Documents whose queries and keys are the same tokens, with the sums that all masks need."""

    lengths: Lengths
    tokens: int
    square: int

    @classmethod
    def of(cls, lengths: Lengths) -> "DocumentLengths":
        """Add up once."""
        return cls(lengths, int(lengths.sum()), int(np.dot(lengths, lengths)))

    def pairs(self, *, left: int | None = None, right: int | None = None) -> int:
        """Pairs of all documents together."""
        return self.square - self._beyond(left) - self._beyond(right)

    def _beyond(self, reach: int | None) -> int:
        """Pairs that lie further to one side than ``reach``: a triangle of side ``length - 1 - reach``."""
        if reach is None:
            return 0
        if reach == 0:
            return (self.square - self.tokens) // 2
        side = np.maximum(self.lengths - (1 + reach), 0)
        return (int(np.dot(side, side)) + int(side.sum())) // 2


def document_pairs(lengths: Lengths, *, left: int | None = None, right: int | None = None) -> int:
    """Pairs of all documents together, whose queries and keys are the same tokens."""
    return DocumentLengths.of(lengths).pairs(left=left, right=right)


def rectangle_pairs(
    queries: int, keys: int, *, left: int | None = None, right: int | None = None, end_aligned: bool = False
) -> int:
    """Pairs of one rectangle, where queries and keys may differ in number."""
    shift = keys - queries if end_aligned else 0
    places = np.arange(queries, dtype=np.int64) + shift
    first = np.zeros_like(places) if left is None else np.maximum(places - left, 0)
    last = np.full_like(places, keys) if right is None else np.minimum(places + right + 1, keys)
    return int(np.maximum(last - first, 0).sum())
