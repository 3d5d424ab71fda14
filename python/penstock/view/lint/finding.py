"""What lint finds, and what a check is: it looks at batches one after another and tells at the end."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.view.lint.given import Expected, Given

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the data that is most likely a mistake."""

    kind: str
    severity: Severity
    #: What is wrong, with the values that say so.
    sentence: str
    #: Where to look: an address for ``penstock view``, or the place in batches that somebody else made.
    address: str
    values: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class Check(ABC):
    """One kind of mistake."""

    kind: str
    severity: Severity = "error"

    def __init__(self, expected: Expected) -> None:
        self.expected = expected

    @abstractmethod
    def look(self, given: Given) -> None:
        """Take note of a batch."""

    @abstractmethod
    def tell(self) -> list[Finding]:
        """What was found in all of them."""

    def found(self, sentence: str, address: str, **values: Any) -> Finding:
        """A finding of this kind."""
        return Finding(self.kind, self.severity, sentence, address, values)


class TokenCheck(Check):
    """A mistake that single tokens make: counted, with the first place."""

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self.count = self.rows = self.of = 0
        self.first = ""
        self.example = 0

    @abstractmethod
    def wrong(self, given: Given) -> npt.NDArray[np.bool_] | None:
        """Which tokens are wrong; None where a batch cannot say it."""

    @abstractmethod
    def sentence(self) -> str:
        """What is wrong, with values."""

    def of_tokens(self, given: Given) -> int:
        """Out of how many tokens."""
        return given.tokens.size

    def look(self, given: Given) -> None:
        """Count them."""
        wrong = self.wrong(given)
        if wrong is None:
            return
        self.of += self.of_tokens(given)
        if not wrong.any():
            return
        if not self.first:
            row, token = (int(each) for each in np.argwhere(wrong)[0])
            self.first = given.place(row, token)
            self.example = int(given.tokens[row, token])
        self.count += int(wrong.sum())
        self.rows += int(wrong.any(axis=1).sum())

    def tell(self) -> list[Finding]:
        """One finding for all of them."""
        if not self.count:
            return []
        return [
            self.found(
                self.sentence(),
                self.first,
                tokens=self.count,
                rows=self.rows,
                of=self.of,
                example=self.example,
            )
        ]

    @property
    def share(self) -> str:
        """How many, of how many."""
        return f"{self.count:,} of {self.of:,} ({self.count / max(1, self.of):.1%})"
