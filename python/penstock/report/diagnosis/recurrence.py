"""Whether a column is high in all steps or in some, and whether those come at a period."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from penstock.report.accounts.timeline import Times
from penstock.report.diagnosis.cause import ordinal, seconds

#: A step is long in a part that takes so much of the usual step time more than usual.
_EXCESS_MIN = 0.5
#: This share of a column stands in long steps, else all steps have it.
_CONCENTRATED = 0.7
#: This share of the distances between long steps are the same, or there is no period.
_REGULAR = 0.8
_LONG_MIN = 3


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence:
    """How a cost comes back."""

    #: Which of the steps are long.
    is_long: np.ndarray
    #: What long steps have more than usual, together.
    excess: int
    #: Steps from one long one to the next; None where that differs.
    period: int | None
    #: Whether nearly all of the column stands in long steps.
    is_concentrated: bool
    total: int

    @property
    def count(self) -> int:
        """Long steps."""
        return int(self.is_long.sum())

    def clause(self, what: str) -> str:
        """Say it of a part: "every 5th step spends 0.50 s …"."""
        steps = len(self.is_long)
        if not self.is_concentrated:
            return f"a step spends {seconds(self.total // max(steps, 1))} {what}"
        spent = seconds(self.excess // max(self.count, 1))
        if self.period is not None:
            return f"every {ordinal(self.period)}step spends {spent} {what}"
        return f"{self.count} of {steps} steps spend {spent} each {what}"


def recurrence_of(column: Times, steps: Times, usual: int) -> Recurrence:
    """Of one part of the steps; ``usual`` is the median step time."""
    middle = int(np.median(column)) if len(column) else 0
    excess = column - middle
    is_long = excess > max(_EXCESS_MIN * usual, 1)
    above = int(excess[is_long].sum())
    total = int(column.sum())
    return Recurrence(
        is_long=is_long,
        excess=above,
        period=_period(steps[is_long], steps),
        is_concentrated=bool(is_long.any()) and above >= _CONCENTRATED * total,
        total=total,
    )


def _period(long_steps: Times, steps: Times) -> int | None:
    """The distance that most neighbours have, if they come at it from the first step to the last: a burst of long steps is no period."""
    if len(long_steps) < _LONG_MIN:
        return None
    distances = np.diff(long_steps).tolist()
    distance, count = Counter(distances).most_common(1)[0]
    due = int(steps[-1] - steps[0] + 1) // max(int(distance), 1)
    is_regular = count >= _REGULAR * len(distances) and len(long_steps) >= _REGULAR * due
    return int(distance) if distance > 0 and is_regular else None
