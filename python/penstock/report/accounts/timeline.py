"""Timelines: what is known of one rank, as marks, steps and spans on one clock. Columns, so that a million steps are a few arrays."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.observe.steps import UNMEASURED
from penstock.report.accounts.account_names import SPAN_PARTS

__all__ = [
    "UNMEASURED",
    "LifeTimeline",
    "Marks",
    "RankTimeline",
    "Spans",
    "StepColumns",
    "Times",
    "no_times",
]

Times = NDArray[np.int64]


def no_times() -> Times:
    """An empty column."""
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Named spans of a life. Any two are apart from each other, or one lies inside the other."""

    names: tuple[str, ...] = ()
    begins: Times = field(default_factory=no_times)
    ends: Times = field(default_factory=no_times)


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Where training went on: when, and from which step."""

    times: Times = field(default_factory=no_times)
    steps: Times = field(default_factory=no_times)


@dataclass(frozen=True, slots=True, eq=False)
class StepColumns:
    """Executions of steps in order of time. One may stand for several that follow each other, where rows were thinned to sums."""

    #: The last step of each.
    numbers: Times = field(default_factory=no_times)
    begins: Times = field(default_factory=no_times)
    #: ``UNMEASURED`` where a death came first.
    ends: Times = field(default_factory=no_times)
    #: Nanoseconds of each step by part, where rows recorded them.
    parts: dict[str, Times] = field(default_factory=dict)
    #: Other columns of the rows, named as in the step table.
    others: dict[str, Times] = field(default_factory=dict)
    #: The first step of each; None where each is one step.
    thinned_from: Times | None = None

    @property
    def firsts(self) -> Times:
        """The first step of each."""
        return self.numbers if self.thinned_from is None else self.thinned_from

    @property
    def counts(self) -> Times:
        """How many steps each stands for."""
        return np.asarray(self.numbers - self.firsts + 1)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LifeTimeline:
    """One life of one rank. Moments are None where they are not known."""

    number: int = 0
    #: Which clock its times are of; times of two clocks cannot be compared.
    clock: str = ""
    requested: int | None = None
    born: int | None = None
    joined: int | None = None
    resumed: Marks = field(default_factory=Marks)
    steps: StepColumns = field(default_factory=StepColumns)
    spans: Spans = field(default_factory=Spans)
    #: When training ended in order.
    ended: int | None = None
    #: When the process was gone.
    died: int | None = None
    #: What the supervisor says about its death; empty where it was not observed.
    cause: str = ""
    #: Nanoseconds from its last sign to the next life by the wall clock, where that life has another clock.
    gap_estimate: int | None = None

    @property
    def marks(self) -> tuple[int, ...]:
        """Known moments before training, in order."""
        return tuple(at for at in (self.requested, self.born, self.joined) if at is not None)

    @property
    def first(self) -> int:
        """When it is first heard of."""
        spans = [int(self.spans.begins.min())] if len(self.spans.begins) else []
        return min([*self._edges(self.resumed.times[:1], self.steps.begins[:1]), *spans])

    @property
    def last(self) -> int:
        """The last sign of it, its spans included."""
        spans = self.spans.ends
        return max([self.sign, *([int(spans.max())] if len(spans) else [])])

    @property
    def sign(self) -> int:
        """Its last mark or step; later there are spans at most, such as those of its supervisor."""
        ends = self.steps.ends[self.steps.ends != UNMEASURED]
        known = self._edges(self.resumed.times[-1:], self.steps.begins[-1:], ends[-1:])
        # A life of which only spans are known begins with the first of them.
        return max(known) if known else self.first

    def _edges(self, *columns: Times) -> list[int]:
        moments = [at for at in (self.ended, self.died) if at is not None]
        return [*self.marks, *moments, *(int(edge) for column in columns for edge in column)]


@dataclass(frozen=True, slots=True, eq=False)
class RankTimeline:
    """All lives of a rank, in order of time."""

    rank: int
    lives: tuple[LifeTimeline, ...]
    #: The part of what spans of parts leave open in a step.
    open_part: str = "rest"

    @property
    def open_part_of_spans(self) -> str | None:
        """The same; None where no span names a part, so that nothing is known about the inside of steps."""
        is_divided = any(not SPAN_PARTS.isdisjoint(life.spans.names) for life in self.lives)
        return self.open_part if is_divided else None
