"""Rows of which no token counts in the loss: work for nothing."""

from penstock.view.lint.finding import Check, Finding
from penstock.view.lint.given import Expected, Given


class RowWithoutLoss(Check):
    """See the module's description."""

    kind = "row-without-loss"

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._count = self._rows = 0
        self._first = ""

    def look(self, given: Given) -> None:
        """Count rows that hold tokens, and no loss."""
        if given.loss is None:
            return
        empty = given.real.any(axis=1) & ~given.loss.any(axis=1)
        self._rows += len(given.tokens)
        self._count += int(empty.sum())
        if empty.any() and not self._first:
            self._first = given.place(int(empty.argmax()), None)

    def tell(self) -> list[Finding]:
        """One finding for all of them."""
        if not self._count:
            return []
        sentence = f"{self._count:,} of {self._rows:,} rows hold tokens of which none counts in the loss"
        return [self.found(sentence, self._first, rows=self._count, of=self._rows)]
