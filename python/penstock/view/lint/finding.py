"""What lint finds, what it costs, and what a check is: it looks at batches one after another and tells at the end."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.view.lint.checked_batch import CheckedBatch
from penstock.view.lint.expectation import Expected
from penstock.view.lint.kinds import KINDS

Severity = Literal["error", "warning"]
#: Addresses that a finding shows, at most.
PLACES_MAX = 5


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
    #: The share of what was looked at that it spoils: of tokens, of the loss, or of rows, as the unit says.
    cost: float = 0.0
    unit: str = "tokens"
    #: What to do about it.
    hint: str = ""
    #: Further addresses, the first among them.
    places: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Cost:
    """How much of what was looked at is affected."""

    share: float
    unit: str = "tokens"


class Tally:
    """Counts what is wrong, of how much, and keeps the first places."""

    def __init__(self) -> None:
        self.count = self.of = 0
        #: Tokens that are affected.
        self.tokens = 0
        self.places: list[str] = []

    def add(
        self, batch: CheckedBatch, row: int, token: int | None, *, count: int = 1, tokens: int = 0
    ) -> None:
        """One more that is wrong."""
        self.count += count
        self.tokens += tokens
        if len(self.places) < PLACES_MAX:
            self.places.append(batch.place(row, token))

    @property
    def share(self) -> float:
        """How many of them are wrong."""
        return self.count / max(1, self.of)

    def __str__(self) -> str:
        return f"{self.count:,} of {self.of:,} ({self.share:.1%})"


class Check(ABC):
    """One or several kinds of mistake that are found by looking at the same thing."""

    kinds: tuple[str, ...]

    def __init__(self, expected: Expected) -> None:
        self.expected = expected

    @abstractmethod
    def look(self, batch: CheckedBatch) -> None:
        """Take note of a batch."""

    @abstractmethod
    def tell(self, tokens: int) -> list[Finding]:
        """What was found in all of them, of so many tokens."""

    def found(
        self,
        sentence: str,
        places: list[str],
        cost: Cost,
        *,
        kind: str = "",
        severity: Severity = "error",
        **values: object,
    ) -> Finding:
        """A finding."""
        name = kind or self.kinds[0]
        return Finding(
            name,
            severity,
            sentence,
            places[0] if places else "",
            values,
            cost=min(1.0, cost.share),
            unit=cost.unit,
            hint=KINDS[name].hint,
            places=tuple(places),
        )


class TokenCheck(Check):
    """A mistake that single tokens make: counted, with the first places."""

    severity: Severity = "error"

    def __init__(self, expected: Expected) -> None:
        super().__init__(expected)
        self.tally = Tally()
        self.rows = self.example = 0

    @abstractmethod
    def wrong(self, batch: CheckedBatch) -> npt.NDArray[np.bool_] | None:
        """Which tokens are wrong; None where a batch cannot say it."""

    @abstractmethod
    def sentence(self) -> str:
        """What is wrong, with values."""

    def of_tokens(self, batch: CheckedBatch) -> int:
        """Out of how many tokens."""
        return int(batch.real.sum())

    def look(self, batch: CheckedBatch) -> None:
        """Count them."""
        wrong = self.wrong(batch)
        if wrong is None:
            return
        self.tally.of += self.of_tokens(batch)
        if not wrong.any():
            return
        rows = np.flatnonzero(wrong.any(axis=1))
        if not self.tally.count:
            self.example = int(batch.tokens[rows[0], wrong[rows[0]].argmax()])
        for row in rows.tolist():
            count = int(wrong[row].sum())
            self.tally.add(batch, row, int(wrong[row].argmax()), count=count, tokens=count)
        self.rows += len(rows)

    def tell(self, tokens: int) -> list[Finding]:
        """One finding for all of them."""
        if not self.tally.count:
            return []
        return [
            self.found(
                self.sentence(),
                self.tally.places,
                self.cost(tokens),
                severity=self.severity,
                tokens=self.tally.count,
                rows=self.rows,
                of=self.tally.of,
                example=self.example,
            )
        ]

    @property
    def named(self) -> str:
        """The first token that is wrong, by number and by name where it has one."""
        vocabulary = self.expected.vocabulary
        name = None if vocabulary is None else vocabulary.added.get(self.example)
        return f"{self.example}" if name is None else f"{self.example} ({name})"

    def cost(self, tokens: int) -> Cost:
        """By default the share of those that could be wrong."""
        return Cost(self.tally.share)
