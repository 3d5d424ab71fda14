"""Summaries of a recording: events by kind, with exact quantiles of how long they took."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.events import Event
from penstock.events.columns import OPEN, EventTable
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
        return _ordered([self._summary(kind) for kind in self._counts])

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


def _ordered(kinds: list[KindSummary]) -> list[KindSummary]:
    return sorted(kinds, key=lambda kind: (-(kind.total_ns or 0), -kind.count, kind.kind))


def summaries_of(tables: Iterable[EventTable], prefix: str = "") -> list[KindSummary]:
    """The events of recordings by kind, of kinds that begin with ``prefix``; what a ``KindTally`` of their events says."""
    durations: dict[str, list[npt.NDArray[np.int64]]] = {}
    for table in tables:
        order = np.argsort(table.kind, kind="stable")
        edges = np.searchsorted(table.kind[order], np.arange(len(table.kinds) + 1))
        for number, kind in enumerate(table.kinds):
            if kind.startswith(prefix):
                chosen = order[edges[number] : edges[number + 1]]
                durations.setdefault(kind, []).append(table.duration_ns[chosen])
    pieces = {kind: np.concatenate(parts) for kind, parts in durations.items()}
    return _ordered([_summary(kind, piece) for kind, piece in pieces.items() if len(piece)])


def _summary(kind: str, durations_ns: npt.NDArray[np.int64]) -> KindSummary:
    ordered = np.sort(durations_ns[durations_ns >= 0])
    has_any, places = len(ordered) > 0, range(len(ordered))
    # A damaged file can claim durations whose sum is more than 64 bits hold.
    total = int(ordered.sum()) if float(ordered.sum(dtype=np.float64)) < 2**62 else sum(ordered.tolist())
    return KindSummary(
        kind=kind,
        count=len(durations_ns),
        open_count=int((durations_ns == OPEN).sum()),
        total_ns=total if has_any else None,
        p50_ns=int(ordered[quantile(places, 0.50)]) if has_any else None,
        p99_ns=int(ordered[quantile(places, 0.99)]) if has_any else None,
        max_ns=int(ordered[-1]) if has_any else None,
    )
