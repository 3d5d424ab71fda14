"""What counts in the loss and should not, and what should and does not: padding, placeholders, prompts, ends, whole rows; labels."""

from collections import Counter

import numpy as np
import numpy.typing as npt

from penstock.view.lint.checked_batch import CheckedBatch, trailing
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import Check, Cost, Finding, Tally, TokenCheck
from penstock.view.lint.piece import Piece

#: Rows without any loss are a loss of work; from this share on, nobody can have meant it.
_MASKED_MIN, _MASKED_ERROR = 0.05, 0.5
#: The same token this often at the end of rows is padding that nobody declared, if rows differ in how often.
_RUN_MIN, _RUN_ROWS_MIN = 4, 0.5
_ENDS_MIN = 4
_PROMPT_MIN = 0.01
_END_UNLEARNED_MIN = 0.9


class LossOnPadding(TokenCheck):
    """Tokens that are no data, and yet count."""

    kinds = ("loss-on-padding",)

    def wrong(self, batch: CheckedBatch) -> npt.NDArray[np.bool_] | None:
        """Padding that counts: what the batch says, every padding token, and undeclared runs at the end of rows."""
        if batch.loss is None:
            return None
        padding = ~batch.real
        if self.expected.pad is not None and self.expected.pad != self.expected.eos:
            padding = padding | (batch.tokens == self.expected.pad)
        elif not batch.says_padding:
            padding = padding | _undeclared(batch.tokens)
        return padding & batch.loss

    def of_tokens(self, batch: CheckedBatch) -> int:
        """Out of what counts."""
        return 0 if batch.loss is None else int(batch.loss.sum())

    def cost(self, tokens: int) -> Cost:
        """Of the loss."""
        return Cost(self.tally.share, "loss")

    def sentence(self) -> str:
        """How many."""
        return f"{self.tally} tokens that count in the loss are padding, in {self.rows:,} rows: token {self.named}"


def _undeclared(tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Runs of one token at the end of rows, where most rows have one and they are of different lengths."""
    none = np.zeros(tokens.shape, dtype=np.bool_)
    if len(tokens) < 2:
        return none
    last, _ = Counter(tokens[:, -1].tolist()).most_common(1)[0]
    runs = trailing(tokens == last)
    lengths = runs.sum(axis=1)
    long = lengths[lengths >= _RUN_MIN]
    if len(long) < _RUN_ROWS_MIN * len(tokens) or len(long) < 2 or len(set(long.tolist())) < 2:
        return none
    # The first of a run may be the end of the text.
    runs[np.arange(len(tokens)), tokens.shape[1] - lengths.clip(1)] = False
    padding: npt.NDArray[np.bool_] = runs & (lengths >= _RUN_MIN)[:, None]
    return padding


class _LossOn(TokenCheck):
    def of_tokens(self, batch: CheckedBatch) -> int:
        """Out of the tokens that count."""
        return 0 if batch.loss is None else int(batch.loss.sum())

    def cost(self, tokens: int) -> Cost:
        """Of the loss."""
        return Cost(self.tally.share, "loss")


class LossOnPlaceholder(_LossOn):
    """Loss on tokens that stand for something else: an image, a sound, a film."""

    kinds = ("loss-on-placeholder",)

    def wrong(self, batch: CheckedBatch) -> npt.NDArray[np.bool_] | None:
        """Placeholders that count."""
        if batch.loss is None or not self.expected.placeholders:
            return None
        return np.isin(batch.tokens, sorted(self.expected.placeholders)) & batch.loss

    def sentence(self) -> str:
        """How much of the loss."""
        return f"{self.tally} tokens that count in the loss are placeholders, such as token {self.named}"


class LossOnPrompt(_LossOn):
    """Loss on what somebody else than the model says, where roles or a mask say who speaks."""

    kinds = ("loss-on-prompt",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._least = 0.0

    def wrong(self, batch: CheckedBatch) -> npt.NDArray[np.bool_] | None:
        """Prompts that count."""
        # Roles of a recipe are found by looking for contents in the text, which may be wrong for single words.
        self._least = _PROMPT_MIN if batch.has_origins else 0.0
        return None if batch.loss is None or batch.prompt is None else batch.prompt & batch.loss

    def sentence(self) -> str:
        """How much of the loss."""
        return f"{self.tally} tokens that count in the loss belong to the prompt"

    def tell(self, tokens: int) -> list[Finding]:
        """Where it is more than an accident."""
        return super().tell(tokens) if self.tally.share >= self._least else []


class RowWithoutLoss(Check):
    """Rows of which no token counts in the loss: work for nothing."""

    kinds = ("row-without-loss",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tally = Tally()

    def look(self, batch: CheckedBatch) -> None:
        """Count rows that hold tokens, and no loss."""
        if batch.loss is None:
            return
        filled = batch.real.any(axis=1)
        self._tally.of += int(filled.sum())
        for row in np.flatnonzero(filled & ~batch.loss.any(axis=1)).tolist():
            self._tally.add(batch, row, None)

    def tell(self, tokens: int) -> list[Finding]:
        """One finding for all of them."""
        tally = self._tally
        if tally.share < _MASKED_MIN or not tally.count:
            return []
        sentence = f"{tally} rows hold tokens of which none counts in the loss"
        severity = "error" if tally.share >= _MASKED_ERROR else "warning"
        cost = Cost(tally.share, "rows")
        return [
            self.found(sentence, tally.places, cost, severity=severity, rows=tally.count, of=tally.of)  # type: ignore[arg-type]
        ]


class EndUnlearned(Check):
    """The token that ends a text or a turn stands there, but never counts: the model does not learn to stop."""

    kinds = ("end-not-learned",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._tally = Tally()

    def look(self, batch: CheckedBatch) -> None:
        """Count ends that follow what counts."""
        if batch.loss is None:
            return
        for piece in batch.pieces:
            ends = batch.of(piece).specials.ends
            if not ends or piece.length < 2:
                continue
            ids, loss = batch.ids(piece), batch.loss[piece.row, piece.at : piece.stop]
            after = np.isin(ids[1:], list(ends)) & loss[:-1]
            self._tally.of += int(after.sum())
            for at in np.flatnonzero(after & ~loss[1:]).tolist():
                self._tally.add(batch, piece.row, piece.at + at + 1)

    def tell(self, tokens: int) -> list[Finding]:
        """One finding, where it is the rule."""
        tally = self._tally
        if tally.count < _ENDS_MIN or tally.share < _END_UNLEARNED_MIN:
            return []
        sentence = f"{tally} ends of texts and turns follow tokens that count, and do not count themselves"
        return [self.found(sentence, tally.places, Cost(tally.share, "ends"), ends=tally.count, of=tally.of)]


class LabelsMoved(Check):
    """Labels that are not the token at their place, nor the next one."""

    kinds = ("labels-shifted", "labels-differ")

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._batches = 0
        self._shifts: Counter[int | None] = Counter()
        self._places: dict[int | None, list[str]] = {}
        self._agreeing = 0.0

    def look(self, batch: CheckedBatch) -> None:
        """Take note of where labels agree."""
        if batch.loss is None or not batch.loss.any() or (batch.shift is None and batch.agreeing == 1.0):
            return
        self._batches += 1
        if batch.shift is None:
            at = batch.tokens[batch.loss]
            common = Counter(at.tolist()).most_common(1)[0][1] / len(at)
            if common > 0.5:  # masked language modelling: what counts is hidden behind one token
                return
            self._agreeing += batch.agreeing
        self._shifts[batch.shift] += 1
        row = int(batch.loss.any(axis=1).argmax())
        self._places.setdefault(batch.shift, []).append(batch.place(row, int(batch.loss[row].argmax())))

    def tell(self, tokens: int) -> list[Finding]:
        """What is not right."""
        findings = []
        for shift in (2, -1):
            if count := self._shifts[shift]:
                where = "two tokens ahead" if shift == 2 else "one token behind"
                sentence = (
                    f"the labels of {count:,} of {self._batches:,} batches are {where} of where they stand"
                )
                cost = Cost(count / self._batches, "loss")
                findings.append(
                    self.found(sentence, self._places[shift][:5], cost, kind="labels-shifted", shift=shift)
                )
        if count := self._shifts[None]:
            agreeing = self._agreeing / count
            sentence = (
                f"the labels of {count:,} of {self._batches:,} batches are not their tokens, at any place: "
                f"{agreeing:.0%} agree"
            )
            cost = Cost(count / self._batches * (1 - agreeing), "loss")
            findings.append(
                self.found(
                    sentence, self._places[None][:5], cost, kind="labels-differ", severity="warning", of=count
                )
            )
        return findings


def counted(batch: CheckedBatch, piece: Piece) -> npt.NDArray[np.bool_]:
    """Which tokens of a piece count; all where nobody says it."""
    if batch.loss is None:
        return np.ones(piece.length, dtype=np.bool_)
    counts: npt.NDArray[np.bool_] = batch.loss[piece.row, piece.at : piece.stop]
    return counts
