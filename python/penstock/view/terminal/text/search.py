"""Search in the text of a batch: in exact bytes, over the boundaries of tokens, row after row and once around.

A text without capital letters is found in any case; ``id=50256`` finds tokens by number. Rows are looked at one by one, so a batch of any size
is searched in the memory of a row.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.view.model.tokens.batch import BatchView

_ID = "id="


@dataclass(frozen=True, slots=True)
class Match:
    """Where something was found."""

    row: int
    #: The tokens that hold it, from the first to the one after the last.
    tokens: tuple[int, int]
    #: All tokens of the row that hold what was looked for.
    all_of_row: frozenset[int]
    #: Whether the search went over the end and began again.
    around: bool


def find(view: BatchView, text: str, start: tuple[int, int], *, backward: bool = False) -> Match | None:
    """The next place after (or before) a token at which a text begins; None when there is none in the batch."""
    order = range(view.rows + 1)
    for turn in order:
        row = (start[0] + (-turn if backward else turn)) % max(1, view.rows)
        spans = _spans(view, row, text)
        last = turn == view.rows
        if turn == 0:
            chosen = [place for place in spans if (place[0] < start[1] if backward else place[0] > start[1])]
        elif last:
            chosen = [
                place for place in spans if (place[0] >= start[1] if backward else place[0] <= start[1])
            ]
        else:
            chosen = spans
        if chosen:
            span = chosen[-1] if backward else chosen[0]
            held = frozenset(token for first, stop in spans for token in range(first, stop))
            return Match(row, span, held, around=last or (row > start[0] if backward else row < start[0]))
    return None


def _spans(view: BatchView, row: int, text: str) -> list[tuple[int, int]]:
    """Tokens of a row that hold a text, from first to last."""
    if row >= view.rows or not text:
        return []
    window = view.window((row, row + 1))
    tokens, sources = window.columns["tokens"][0], window.columns["sources"][0]
    number = text.removeprefix(_ID)
    known = any(source.vocabulary is not None for source in view.sources)
    if number.isdecimal() and (text.startswith(_ID) or not known):
        return [(at, at + 1) for at in np.flatnonzero(tokens == int(number)).tolist()]
    data, ends = _bytes(view, tokens, sources)
    wanted = text.encode()
    if text == text.lower():
        data = data.lower()
    spans, at = [], data.find(wanted)
    while at >= 0:
        first = int(np.searchsorted(ends, at, side="right"))
        stop = int(np.searchsorted(ends, at + len(wanted) - 1, side="right")) + 1
        spans.append((first, stop))
        at = data.find(wanted, at + 1)
    return spans


def _bytes(
    view: BatchView, tokens: npt.NDArray[np.generic], sources: npt.NDArray[np.uint16]
) -> tuple[bytes, npt.NDArray[np.int64]]:
    """The bytes of a row's tokens one after another, and where each token ends."""
    seen: dict[tuple[int, int], bytes] = {}
    pieces = []
    for token, source in zip(tokens.tolist(), sources.tolist(), strict=True):
        piece = seen.get((token, source))
        if piece is None:
            vocabulary = view.sources[source].vocabulary if source < len(view.sources) else None
            piece = seen[token, source] = (vocabulary.bytes_of(token) if vocabulary else None) or b""
        pieces.append(piece)
    return b"".join(pieces), np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
