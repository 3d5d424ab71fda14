"""The same tokens of the same sample more than once: within a batch, across lanes, across steps of a window.

A sample may stand in several rows because it was cut into stretches; that is no repeat. Stretches that overlap are one.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some tokens of a sample, and where they were seen."""

    source: str
    sample: Hashable
    start: int
    stop: int
    #: Where to look at them.
    place: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Two stretches of a sample that overlap."""

    first: Stretch
    again: Stretch

    @property
    def tokens(self) -> int:
        """How many tokens stand in both."""
        return min(self.first.stop, self.again.stop) - max(self.first.start, self.again.start)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "source": self.first.source,
            "sample": self.first.sample,
            "tokens": self.tokens,
            "places": [self.first.place, self.again.place],
        }


def repeats_of(stretches: Iterable[Stretch]) -> list[Repeat]:
    """Every stretch that overlaps one before it, with that one."""
    by_sample: dict[Hashable, list[Stretch]] = defaultdict(list)
    repeats = []
    for stretch in stretches:
        known = by_sample[stretch.source, stretch.sample]
        before = next((old for old in known if old.start < stretch.stop and stretch.start < old.stop), None)
        if before is not None:
            repeats.append(Repeat(before, stretch))
        known.append(stretch)
    return repeats
