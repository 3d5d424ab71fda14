"""Attention and positions: documents that see each other, positions that do not begin again, boundaries that disagree."""

import numpy as np
import numpy.typing as npt

from penstock.view.lint.checked_batch import CheckedBatch
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import Check, Cost, Finding, Tally, TokenCheck
from penstock.view.lint.piece import changes


class AttentionLeak(TokenCheck):
    """A segment that holds the end of one document and the beginning of another.

    Where nothing keeps documents apart at all, that is how many train on purpose, and only a warning.
    """

    kinds = ("attention-leak",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self.severity = "warning"

    def wrong(self, batch: CheckedBatch) -> npt.NDArray[np.bool_] | None:
        """First tokens of documents that stand in the segment of the token before."""
        starts = _starts(batch, self.expected.bos)
        if not starts.any():
            return None
        # Without segments a row is one segment.
        segments = np.zeros(batch.tokens.shape) if batch.segments is None else batch.segments
        joined = np.zeros(batch.tokens.shape, dtype=np.bool_)
        joined[:, 1:] = (segments[:, 1:] == segments[:, :-1]) & batch.real[:, :-1]
        wrong: npt.NDArray[np.bool_] = starts & joined
        if wrong.any() and (batch.has_origins or _kept_apart(batch)):
            self.severity = "error"
        return wrong

    def of_tokens(self, batch: CheckedBatch) -> int:
        """Out of the documents."""
        return int(_starts(batch, self.expected.bos).sum())

    def sentence(self) -> str:
        """How many."""
        return f"{self.tally} documents begin inside the segment of another one, in {self.rows:,} rows: attention reaches across them"


class PositionsNotReset(TokenCheck):
    """Positions that go on where a document begins."""

    kinds = ("positions-not-reset",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self.severity = "warning"
        self._first: set[int] = set()

    def wrong(self, batch: CheckedBatch) -> npt.NDArray[np.bool_] | None:
        """First tokens of segments and documents whose position is not 0."""
        if batch.positions is None:
            return None
        starts = self._starts(batch)
        self._first |= set(np.unique(batch.positions[starts]).tolist())
        wrong: npt.NDArray[np.bool_] = starts & (batch.positions != 0)
        if wrong.any() and (batch.has_origins or _kept_apart(batch)):
            self.severity = "error"
        return wrong

    def of_tokens(self, batch: CheckedBatch) -> int:
        """Out of the beginnings."""
        return int(self._starts(batch).sum())

    def tell(self, tokens: int) -> list[Finding]:
        """Nothing where positions begin at another number everywhere, as some models count."""
        return [] if len(self._first) == 1 else super().tell(tokens)

    def sentence(self) -> str:
        """How many."""
        return f"{self.tally} documents do not begin at position 0, in {self.rows:,} rows"

    def _starts(self, batch: CheckedBatch) -> npt.NDArray[np.bool_]:
        starts = _starts(batch, self.expected.bos)
        if batch.segments is not None:
            starts = starts | changes(batch.segments)
        return starts & batch.real


class PositionsJump(TokenCheck):
    """Positions inside of a segment that do not go up one by one."""

    kinds = ("positions-jump",)

    def wrong(self, batch: CheckedBatch) -> npt.NDArray[np.bool_] | None:
        """Tokens whose position is neither 0 nor one more than the token before has."""
        if batch.positions is None:
            return None
        wrong = np.zeros(batch.tokens.shape, dtype=np.bool_)
        steps = np.diff(batch.positions, axis=1)
        wrong[:, 1:] = (steps != 1) & (batch.positions[:, 1:] != 0) & batch.real[:, 1:] & batch.real[:, :-1]
        if batch.segments is not None:
            wrong &= ~changes(batch.segments)
        return wrong

    def sentence(self) -> str:
        """How many."""
        return f"the positions of {self.tally} tokens do not follow the token before, in {self.rows:,} rows"


class PositionsConstant(Check):
    """Every token has the same position, so the model cannot know their order."""

    kinds = ("positions-constant",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._values: set[int] = set()
        self._tally = Tally()

    def look(self, batch: CheckedBatch) -> None:
        """Take note of positions."""
        if batch.positions is None or batch.real.sum(axis=1).max(initial=0) < 2:
            return
        self._values |= set(np.unique(batch.positions[batch.real])[:2].tolist())
        self._tally.of += len(batch.tokens)
        self._tally.add(batch, 0, None, count=len(batch.tokens))

    def tell(self, tokens: int) -> list[Finding]:
        """Where there is but one."""
        if len(self._values) != 1:
            return []
        sentence = f"all tokens of {self._tally.of:,} rows stand at position {next(iter(self._values))}"
        return [self.found(sentence, self._tally.places, Cost(1.0))]


class BoundariesDisagree(Check):
    """Boundaries for attention (cu_seqlens) that are not where positions or segments begin again."""

    kinds = ("boundaries-disagree",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tally = Tally()

    def look(self, batch: CheckedBatch) -> None:
        """Compare both, over all rows one after another."""
        if batch.edges is None:
            return
        declared = np.zeros(batch.tokens.size, dtype=np.bool_)
        declared[batch.edges[batch.edges < batch.tokens.size]] = True
        real = batch.real.reshape(-1)
        if batch.positions is not None and (batch.positions != 0).any():
            begin = (batch.positions == 0).reshape(-1)
        elif batch.segments is not None:
            begin = changes(batch.segments).reshape(-1)
        else:
            return
        wrong = ((declared != begin) & real).reshape(batch.tokens.shape)
        self._tally.of += int(((declared | begin) & real).sum())
        for row in np.flatnonzero(wrong.any(axis=1)).tolist():
            count = int(wrong[row].sum())
            self._tally.add(batch, row, int(wrong[row].argmax()), count=count)

    def tell(self, tokens: int) -> list[Finding]:
        """How many."""
        if not self._tally.count:
            return []
        sentence = (
            f"{self._tally} boundaries are only in cu_seqlens, or only where positions or segments begin"
        )
        return [self.found(sentence, self._tally.places, Cost(self._tally.share, "documents"))]


def _kept_apart(batch: CheckedBatch) -> bool:
    """Whether anything in the batch keeps documents apart."""
    if batch.segments is None:
        return False
    inner = changes(batch.segments)[:, 1:] & batch.real[:, 1:] & batch.real[:, :-1]
    return bool(inner.any())


def _starts(batch: CheckedBatch, bos: int | None) -> npt.NDArray[np.bool_]:
    """Where documents begin: by origin, or by a token that begins one."""
    starts = np.zeros(batch.tokens.shape, dtype=np.bool_)
    for piece in batch.pieces:
        if batch.has_origins and piece.made != "stored":
            starts[piece.row, piece.at] = True
        else:
            begin = batch.of(piece).specials.begin | ({bos} if bos is not None else set())
            ids = batch.ids(piece)
            if len(ids) and begin:
                here = np.isin(ids, list(begin))
                # Two in a row are a doubled token, not two documents.
                here[1:] &= ~here[:-1].copy()
                if piece.at and batch.tokens[piece.row, piece.at - 1] in begin:
                    here[0] = False
                starts[piece.row, piece.at : piece.stop] |= here
    return starts & batch.real
