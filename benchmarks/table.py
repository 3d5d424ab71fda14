"""How a benchmark reports: what was measured, in which unit, and its ratio to the reference of the same run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Row:
    """One contender."""

    what: str
    value: float
    note: str = ""


@dataclass
class Table:
    """One claim with its measurements; the first row is what the others are compared with."""

    claim: str
    unit: str
    #: Whether a smaller value is better.
    smaller_is_better: bool = True
    rows: list[Row] = field(default_factory=list)

    def add(self, what: str, value: float, note: str = "") -> None:
        """Add a contender."""
        self.rows.append(Row(what, value, note))

    def ratio(self, row: Row) -> float:
        """How many times as good as the reference."""
        reference = self.rows[0].value
        return reference / row.value if self.smaller_is_better else row.value / reference

    def to_json(self) -> dict[str, object]:
        """The table as plain values."""
        rows = [
            {"what": r.what, "value": r.value, "ratio": round(self.ratio(r), 4), "note": r.note}
            for r in self.rows
        ]
        return {"claim": self.claim, "unit": self.unit, "rows": rows}

    def text(self, name: str) -> str:
        """The table for people."""
        width = max(len(row.what) for row in self.rows)
        lines = [
            f"{row.what:<{width}}  {row.value:>12.4g} {self.unit}  {self.ratio(row):>8.3g} x  {row.note}"
            for row in self.rows
        ]
        return "\n".join([f"\n{name}: {self.claim}", *(line.rstrip() for line in lines)])


def best_of(work: Callable[[], object], *, rounds: int = 5) -> float:
    """Seconds of the fastest of several rounds: the one that other programs disturbed least."""
    return min(timed(work) for _ in range(rounds))


def median_of(work: Callable[[], object], *, rounds: int = 9) -> float:
    """Seconds of the middle round."""
    return statistics.median(timed(work) for _ in range(rounds))


def timed(work: Callable[[], object]) -> float:
    """Seconds of one round."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
