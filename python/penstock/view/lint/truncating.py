"""Documents that lost tokens to a limit."""

from penstock.view.lint.finding import Check, Finding
from penstock.view.lint.given import Expected, Given


class TruncatedShare(Check):
    """More documents were cut short than the limit allows."""

    kind = "truncated"
    severity = "warning"

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self._cut = self._documents = 0
        self._first = ""

    def look(self, given: Given) -> None:
        """Count them, where origins say it, or where documents should end with a token that ends them."""
        cut, documents = given.truncated or (0, 0)
        if given.truncated is None and self.expected.ends and self.expected.eos is not None:
            # A row that is full and does not end with an end was cut.
            full = given.real.all(axis=1)
            cut, documents = int((full & (given.tokens[:, -1] != self.expected.eos)).sum()), len(given.tokens)
        self._cut += cut
        self._documents += documents
        if cut and not self._first:
            self._first = given.place(0, None)

    def tell(self) -> list[Finding]:
        """The share, where it passes the limit."""
        share = self._cut / max(1, self._documents)
        if share <= self.expected.truncated_max:
            return []
        sentence = (
            f"{self._cut:,} of {self._documents:,} documents ({share:.1%}) were cut short, "
            f"at most {self.expected.truncated_max:.1%} were expected"
        )
        return [
            self.found(sentence, self._first, truncated=self._cut, documents=self._documents, share=share)
        ]
