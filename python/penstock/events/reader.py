"""Reading recordings back: begins and ends joined into events, losses and tears reported."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock._rust import EventReader
from penstock.errors import NotAnEventFile


@dataclass(frozen=True, slots=True)
class Event:
    """One recorded fact: a point in time, or a span."""

    #: When it happened or began, in nanoseconds since the recording began.
    time_ns: int
    kind: str
    #: How long a span took; None for a point, and for a span that never ended.
    duration_ns: int | None
    #: The system's number of the thread.
    thread: int
    fields: dict[str, Any]
    #: A span whose end is not in the file: it was going on when the recording stopped.
    open: bool = False
    #: Something was shortened or left out to keep the record small.
    cut: bool = False

    def to_json(self) -> dict[str, Any]:
        """The event as plain values."""
        document: dict[str, Any] = {"time_ns": self.time_ns, "kind": self.kind, "thread": self.thread}
        if self.duration_ns is not None:
            document["duration_ns"] = self.duration_ns
        if self.open:
            document["open"] = True
        if self.cut:
            document["cut"] = True
        return {**document, "fields": self.fields}


@dataclass(slots=True)
class Recording:
    """A recording of one process. Iterate it for its events; the counts are complete after that."""

    path: Path
    #: Who recorded: pid, host, argv, started_wall_ns.
    process: dict[str, Any] = field(default_factory=dict)
    #: Events that the recorder had to drop, as far as the file says.
    lost: int = 0
    #: Bytes after the last whole frame: what a kill tore off or damage made unreadable.
    torn_bytes: int = 0
    #: Whether the recorder was stopped in order. False after a kill, and while it still records.
    closed: bool = False

    def __post_init__(self) -> None:
        try:
            self.process = json.loads(EventReader(self.path).header)
        except ValueError as reason:
            raise NotAnEventFile(path=self.path, reason="its header is not JSON") from reason

    def __iter__(self) -> Iterator[Event]:
        """Points as they come and spans as they end; spans that never ended come last."""
        reader = EventReader(self.path)
        begun: dict[int, Event] = {}
        while (frame := reader.next_frame()) is not None:
            for fact, time_ns, thread, span, kind, fields, cut in frame:
                if fact == "point":
                    yield Event(time_ns, kind, None, thread, fields, cut=cut)
                elif fact == "begin":
                    begun[span] = Event(time_ns, kind, None, thread, fields, open=True, cut=cut)
                elif fact == "end":
                    # The begin may have been lost while the end was not.
                    if (event := begun.pop(span, None)) is not None:
                        duration_ns = time_ns - event.time_ns
                        whole = event.fields | fields
                        yield Event(
                            event.time_ns, event.kind, duration_ns, event.thread, whole, cut=event.cut or cut
                        )
                else:
                    self.lost = fields["lost"] if isinstance(fields["lost"], int) else self.lost
                    self.closed = fact == "closed"
        self.torn_bytes = reader.torn_bytes
        yield from begun.values()


def read(path: str | os.PathLike[str]) -> Recording:
    """Open a recording. Raises ``NotAnEventFile`` when the file is something else."""
    return Recording(Path(path))
