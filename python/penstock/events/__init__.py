"""Events: facts recorded cheaply now, so that meaning can be computed later.

``record`` states that something happened, ``span`` that it took a while. Both only copy a few bytes into a ring in
memory; a background thread writes the ring to one file per process. They never wait: what finds no room is
counted as lost, and a file torn by ``kill -9`` is readable up to the tear. Without ``start`` both do nothing.
"""

from penstock._rust import Span, record, span
from penstock.events.reader import Event, Recording, read
from penstock.events.recorder import EventStatistics, flush, recording, start, statistics, stop

__all__ = [
    "Event",
    "EventStatistics",
    "Recording",
    "Span",
    "flush",
    "read",
    "record",
    "recording",
    "span",
    "start",
    "statistics",
    "stop",
]
