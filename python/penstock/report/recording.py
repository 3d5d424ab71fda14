"""Summaries of a recording: events by kind, with exact quantiles of how long they took."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.events import Event
from penstock.events.quantile import quantile

#: A damaged file can claim anything; durations are held to what 64 bits and a positive clock allow.
DURATION_MAX_NS = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSummary:
    """All events of one kind. Times are None where no event of it has ended."""

    kind: str
    count: int
    open_count: int
    total_ns: int | None
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None


class KindTally:
    """Adds up events; durations are kept whole, 8 bytes each, so that quantiles are exact."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._open: dict[str, int] = {}
        self._durations_ns: dict[str, array[int]] = {}

    def add(self, event: Event) -> None:
        """Count an event."""
        self._counts[event.kind] = self._counts.get(event.kind, 0) + 1
        if event.duration_ns is not None:
            took_ns = min(max(event.duration_ns, 0), DURATION_MAX_NS)
            self._durations_ns.setdefault(event.kind, array("q")).append(took_ns)
        elif event.open:
            self._open[event.kind] = self._open.get(event.kind, 0) + 1

    def summaries(self) -> list[KindSummary]:
        """Most time first, then most events: the order in which a reader looks for a cause."""
        kinds = [self._summary(kind) for kind in self._counts]
        return sorted(kinds, key=lambda kind: (-(kind.total_ns or 0), -kind.count, kind.kind))

    def _summary(self, kind: str) -> KindSummary:
        ordered = sorted(self._durations_ns.get(kind, ()))
        return KindSummary(
            kind=kind,
            count=self._counts[kind],
            open_count=self._open.get(kind, 0),
            total_ns=sum(ordered) if ordered else None,
            p50_ns=quantile(ordered, 0.50) if ordered else None,
            p99_ns=quantile(ordered, 0.99) if ordered else None,
            max_ns=ordered[-1] if ordered else None,
        )


def by_kind(events: Iterable[Event]) -> list[KindSummary]:
    """The events of a recording, by kind."""
    tally = KindTally()
    for event in events:
        tally.add(event)
    return tally.summaries()
