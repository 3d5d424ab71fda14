"""A source whose share of the loss passes its weight by far."""

from collections import Counter

from penstock.view.lint.finding import Check, Finding
from penstock.view.lint.given import Expected, Given


class Dominating(Check):
    """See the module's description. Weights are shares of rows; what is learned is tokens that count."""

    kind = "dominating-source"
    severity = "warning"

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._loss: Counter[str] = Counter()
        self._weights: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def look(self, given: Given) -> None:
        """Count what counts, by source, and what the weights would have."""
        weights = given.weights or self.expected.weights
        if given.sources is None or not weights:
            return
        total = sum(weights.values())
        for name, weight in weights.items():
            self._weights[name] += weight / total * len(given.sources)  # type: ignore[assignment]
        counted = given.real if given.loss is None else given.loss
        for row, name in enumerate(given.sources):
            self._loss[name] += int(counted[row].sum())
            self._first.setdefault(name, given.place(row, None))

    def tell(self) -> list[Finding]:
        """A finding for every source that is too much."""
        loss, weights = sum(self._loss.values()), sum(self._weights.values())
        found = []
        for name, count in self._loss.most_common():
            share, weight = count / max(1, loss), self._weights[name] / max(1e-9, weights)
            if name and share - weight > self.expected.dominance_max:
                sentence = f"{name} has {share:.1%} of the tokens that count in the loss, with a weight of {weight:.1%}"
                found.append(self.found(sentence, self._first[name], source=name, share=share, weight=weight))
        return found
