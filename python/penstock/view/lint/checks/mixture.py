"""The mixture: a source that is learned more than its weight says, and one source under two names."""

from collections import Counter

from penstock.view.lint.checked_batch import CheckedBatch
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import Check, Cost, Finding

#: Rows below which shares are chance.
_ROWS_MIN = 4


class DominatingSource(Check):
    """A source whose share of the loss passes its weight by far. Weights are shares of rows; what is learned is tokens that count."""

    kinds = ("dominating-source",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._loss: Counter[str] = Counter()
        self._weights: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self._rows = 0

    def look(self, batch: CheckedBatch) -> None:
        """Count what counts, by source, and what the weights would have."""
        weights = batch.weights or self.expected.weights
        if batch.sources is None or not weights:
            return
        total = sum(weights.values())
        for name, weight in weights.items():
            self._weights[name] += weight / total * len(batch.sources)  # type: ignore[assignment]
        counts = batch.real if batch.loss is None else batch.loss
        self._rows += len(batch.sources)
        for row, name in enumerate(batch.sources):
            self._loss[name] += int(counts[row].sum())
            self._first.setdefault(name, batch.place(row, None))

    def tell(self, tokens: int) -> list[Finding]:
        """A finding for every source that is too much."""
        loss, weights = sum(self._loss.values()), sum(self._weights.values())
        findings = []
        for name, count in self._loss.most_common():
            share, weight = count / max(1, loss), self._weights[name] / max(1e-9, weights)
            if name and share - weight > self.expected.dominance_max and self._rows >= _ROWS_MIN:
                sentence = f"{name} has {share:.1%} of the tokens that count in the loss, with a weight of {weight:.1%}"
                cost = Cost(share - weight, "loss")
                findings.append(
                    self.found(
                        sentence,
                        [self._first[name]],
                        cost,
                        severity="warning",
                        source=name,
                        share=share,
                        weight=weight,
                    )
                )
        return findings


class SameSource(Check):
    """Two sources of a recipe that read the same files in the same way."""

    kinds = ("same-source",)

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._pairs: list[tuple[str, str, float]] = []
        self._first: dict[str, str] = {}
        self._tokens: Counter[str] = Counter()

    def same(self, one: str, other: str, share: float) -> None:
        """Take note that so much of a source is another one's too."""
        self._pairs.append((one, other, share))

    def look(self, batch: CheckedBatch) -> None:
        """Take note of where sources are."""
        for piece in batch.pieces:
            self._first.setdefault(piece.source, batch.place(piece.row, piece.at))
            self._tokens[piece.source] += piece.length

    def tell(self, tokens: int) -> list[Finding]:
        """A finding for every pair."""
        findings = []
        for one, other, share in self._pairs:
            sentence = (
                f"{other} and {one} are the same data: {share:.0%} of the files of {other} are those of {one}"
            )
            cost = Cost(share * self._tokens[other] / max(1, tokens))
            places = [self._first[name] for name in (other, one) if name in self._first]
            if places:
                findings.append(self.found(sentence, places, cost, sources=[one, other], share=share))
        return findings
