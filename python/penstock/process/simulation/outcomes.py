"""What became of imagined jobs: accounts and interruptions for each seed, with mean and spread over seeds."""

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from penstock._rust import simulate as _simulate
from penstock.process.simulation.plan import SimulationPlan

#: Where time goes, in the order in which it is shown. They sum to the time exactly (O1).
ACCOUNTS = {
    "useful": "useful steps",
    "smaller": "fewer hosts than asked for",
    "redone": "work done again",
    "saving": "standing still for saves",
    "detection": "noticing a fault",
    "lease": "leases of lost hosts",
    "ending": "ending an old life",
    "waiting": "waiting for a host",
    "backoff": "pauses between restarts",
    "start": "starting processes",
    "load": "loading a checkpoint",
    "over": "after the job gave up",
}


class CauseCount(msgspec.Struct, frozen=True):
    """What became of the faults of one cause."""

    #: How many hit hosts of the job; of these, how many found it down already.
    all: int
    while_down: int


class EarlyEnd(msgspec.Struct, frozen=True):
    """The job gave up."""

    at_ms: int
    reason: str


class Span(msgspec.Struct, frozen=True):
    """A time that was no training."""

    from_ms: int
    to_ms: int
    account: str


class Outcome(msgspec.Struct, frozen=True):
    """How the job fared with one seed."""

    seed: int
    accounts: list[tuple[str, int]]
    interruptions: list[CauseCount]
    spares_lost: int
    restarts: int
    replacements: int
    shrinks: int
    fewest_spares: int
    ended: EarlyEnd | None
    #: Of the first seed only.
    spans: list[Span]

    @property
    def sums(self) -> dict[str, int]:
        """Milliseconds by account."""
        return dict(self.accounts)


@dataclass(frozen=True, slots=True)
class Spread:
    """A value over seeds."""

    mean: float
    deviation: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of at least one."""
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(statistics.fmean(values), deviation, min(values), max(values))

    def to_json(self) -> dict[str, float]:
        """As plain values."""
        return {"mean": self.mean, "deviation": self.deviation, "least": self.least, "most": self.most}


@dataclass(frozen=True, slots=True)
class Summary:
    """All seeds of a plan."""

    plan: SimulationPlan
    outcomes: tuple[Outcome, ...]

    def spread(self, value: Callable[[Outcome], float]) -> Spread:
        """Of any value."""
        return Spread.of([value(outcome) for outcome in self.outcomes])

    def share(self, account: str) -> Spread:
        """The share of an account."""
        whole = round(self.plan.for_s * 1000)
        return self.spread(lambda outcome: outcome.sums[account] / whole)

    def interruptions(self, *, planned: bool | None = None) -> Spread:
        """All of them, or only those that were planned or not."""
        kinds = [cause.loses == "job" for cause in self.plan.profile.causes]
        places = [place for place, kind in enumerate(kinds) if planned in (None, kind)]
        return self.spread(lambda outcome: sum(outcome.interruptions[place].all for place in places))

    def of_cause(self, place: int) -> Spread:
        """Those of one cause."""
        return self.spread(lambda outcome: outcome.interruptions[place].all)

    @property
    def between_failures_s(self) -> float | None:
        """Time between two unplanned faults, as the profile expects it."""
        return self.plan.for_s / self.plan.expected if self.plan.expected else None

    @property
    def ended(self) -> list[Outcome]:
        """Jobs that gave up."""
        return [outcome for outcome in self.outcomes if outcome.ended is not None]


def simulate(plan: SimulationPlan) -> Summary:
    """Live the plan through, once for each seed, on all processors that this process may use."""
    threads = len(os.sched_getaffinity(0))
    seeds = plan.all_seeds
    outcomes: list[Outcome] = []
    # A few at a time, so that Ctrl-C is heard between them.
    for place in range(0, len(seeds), 2 * threads):
        text = _simulate(plan.to_json(seeds[place : place + 2 * threads]), threads)
        lived = msgspec.json.decode(text, type=list[Outcome])
        outcomes += lived if not outcomes else [msgspec.structs.replace(one, spans=[]) for one in lived]
    return Summary(plan, tuple(outcomes))
