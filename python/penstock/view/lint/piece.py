"""Pieces: the stretches of rows that documents are seen in, whoever made the batch.

Of Penstock's own batches origins say them. Of others segments do, and where there are none, the tokens that begin and end texts.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.view.lint.specials import Specials

#: How tokens came about: from text, from a conversation, or somebody made them before.
Making = Literal["text", "chat", "stored"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a row that belongs to one document."""

    row: int
    at: int
    stop: int
    source: str = ""
    #: What it is a part of, its first token there, and how often the source was read before.
    sample: Hashable = None
    start: int = 0
    epoch: int = 0
    #: Whether the document begins and ends here; None where nobody knows.
    begins: bool | None = None
    ends: bool | None = None
    made: Making = "stored"

    @property
    def length(self) -> int:
        """Tokens of it."""
        return self.stop - self.at


def pieces_of_row(
    row: int,
    tokens: npt.NDArray[np.int64],
    real: npt.NDArray[np.bool_],
    segments: npt.NDArray[np.int64] | None,
    specials: Specials,
) -> Iterator[Piece]:
    """The pieces of a row that somebody else made."""
    filled = np.flatnonzero(real)
    if not len(filled):
        return
    first, stop = int(filled[0]), int(filled[-1]) + 1
    padded = first > 0 or stop < len(tokens)
    if segments is None:
        yield from split(
            Piece(row, first, stop, begins=padded or None, ends=padded or None), tokens, specials
        )
        return
    inner = segments[first:stop]
    edges = [0, *(np.flatnonzero(np.diff(inner)) + 1).tolist(), len(inner)]
    for at, end in pairwise(edges):
        yield Piece(
            row,
            first + at,
            first + end,
            begins=True if at or padded else None,
            ends=True if first + end < stop or padded else None,
        )


def split(piece: Piece, tokens: npt.NDArray[np.int64], specials: Specials) -> Iterator[Piece]:
    """A piece of stored tokens, cut where texts end or begin; ``tokens`` are those of its row."""
    inner = tokens[piece.at : piece.stop]
    cuts: set[int] = set()
    if specials.end:
        cuts |= {at + 1 for at in np.flatnonzero(np.isin(inner, list(specials.end))).tolist()}
    if specials.begin:
        begins = np.isin(inner, list(specials.begin))
        # Two in a row are a doubled token, not two documents.
        begins[1:] &= ~begins[:-1].copy()
        cuts |= set(np.flatnonzero(begins).tolist())
    edges = [0, *sorted(cuts - {0, len(inner)}), len(inner)]
    last = int(inner[-1]) if len(inner) else -1
    for at, stop in pairwise(edges):
        yield Piece(
            piece.row,
            piece.at + at,
            piece.at + stop,
            piece.source,
            (piece.sample, piece.start + at) if len(edges) > 2 else piece.sample,
            0 if len(edges) > 2 else piece.start,
            piece.epoch,
            # Of several documents in one sample the first may have begun before it.
            begins=True
            if at
            else piece.begins
            if len(edges) == 2 or int(inner[0]) in specials.begin
            else None,
            ends=True if stop < len(inner) or last in specials.end else piece.ends,
            made=piece.made,
        )


def changes(numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where the numbers of rows are others than before; the first of a row always is."""
    edges = np.ones(numbers.shape, dtype=np.bool_)
    edges[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    return edges
