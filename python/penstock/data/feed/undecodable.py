"""Samples that cannot be decoded: what is known of them, and how many a feed bears.

A recipe says whether such a sample is an error or stays in its place, masked. Masked ones are counted as they are delivered,
so the count is the same for any number of threads, and too many of them are an error after all.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from penstock import events
from penstock.data.feed.batch import Origin
from penstock.data.maps.rows import StageFailed
from penstock.errors import SampleUndecodable, TooManyUndecodable

#: Of how many samples the place and the reason are kept.
SHOWN_MAX = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """A sample that could not be decoded."""

    #: Row of the batch.
    row: int
    origin: Origin
    reason: str

    def to_json(self) -> dict[str, Any]:
        """The fault as plain values."""
        return asdict(self)


def fault_of(row: int, origin: Origin, failure: StageFailed, policy: str) -> Fault:
    """What a failed stage makes of a sample: a fault to be masked, or an error where the recipe raises."""
    if policy == "raise":
        raise SampleUndecodable(
            version=origin.version,
            sample=origin.sample,
            shard=origin.shard,
            stage=failure.stage,
            reason=failure.reason,
        ) from failure
    return Fault(row, origin, f"{failure.stage}: {failure.reason}")


@dataclass(frozen=True, slots=True)
class Undecodable:
    """How many rows were masked since a feed was opened because their samples cannot be decoded, and the first of them."""

    count: int = 0
    first: tuple[Fault, ...] = ()


@dataclass
class UndecodableCount:
    """The count of one feed. Belongs to whoever takes the batches; threads that make them do not touch it."""

    #: How many samples of a source may be masked; one that comes again in a later epoch counts once.
    limit: int
    rows: int = 0
    first: list[Fault] = field(default_factory=list)
    samples: dict[str, set[int]] = field(default_factory=dict)

    def add(self, faults: tuple[Fault, ...]) -> None:
        """Count what a batch brings; more samples than the limit are an error."""
        for fault in faults:
            origin = fault.origin
            self.rows += 1
            events.record(
                "data.undecodable", version=origin.version, sample=origin.sample, reason=fault.reason
            )
            if len(self.first) < SHOWN_MAX:
                self.first.append(fault)
            known = self.samples.setdefault(origin.source, set())
            known.add(origin.sample)
            if len(known) > self.limit:
                shown = f"{origin.version} row {origin.sample}: {fault.reason}"
                raise TooManyUndecodable(source=origin.source, limit=self.limit, last=shown)

    def told(self) -> Undecodable:
        """What is known so far."""
        return Undecodable(self.rows, tuple(self.first))
