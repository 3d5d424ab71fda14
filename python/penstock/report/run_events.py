"""The recordings of a run as one: events of all ranks and lives, merged by time.

Lives follow one another, whatever somebody did to the wall clock between them. Inside a life ranks are merged by the wall time at which
their recordings began, and by the time since then.
"""

import heapq
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import EventError
from penstock.events import Event, Recording
from penstock.events.columns import EventTable, read_table

FOLDER = "events"
#: The file before the last one, where a recording was rotated, has a name of its own.
_NAME = re.compile(r"(\d+)-(\d+)(?:-(\d+))?(\.earlier)?\.pev")
#: Recordings of a life that are read side by side; those of more ranks are read whole.
_OPEN_MAX = 256


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An event of one rank of one life."""

    life: int
    rank: int
    #: When it happened or began, in nanoseconds since 1970.
    wall_ns: int
    event: Event

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"life": self.life, "rank": self.rank, "wall_ns": self.wall_ns, **self.event.to_json()}


@dataclass(slots=True)
class RunEvents:
    """Iterate it for the events; what was lost is known after that."""

    folder: Path
    #: Events that recorders had to drop, and recordings that were not closed or are torn.
    lost: int = 0
    unclosed: int = 0
    torn_bytes: int = 0
    #: Recordings that could not be read, in words.
    faults: list[str] = field(default_factory=list)

    def recordings(self) -> dict[int, list[tuple[int, Path]]]:
        """Ranks and files by life, in the order in which they were written."""
        lives: dict[int, list[tuple[tuple[int, int, bool], Path]]] = {}
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            name = _NAME.fullmatch(path.name)
            if name is not None and path.is_file():
                order = (int(name[2]), int(name[3] or 0), name[4] is None)
                lives.setdefault(int(name[1]), []).append((order, path))
        return {life: [(order[0], path) for order, path in sorted(lives[life])] for life in sorted(lives)}

    def __iter__(self) -> Iterator[RunEvent]:
        """Points as they come and spans as they end; spans that never ended come last of their recording."""
        for life, files in self.recordings().items():
            streams: list[Iterable[tuple[int, RunEvent]]] = [
                self._events(life, rank, path) for rank, path in files
            ]
            if len(streams) > _OPEN_MAX:
                streams = [list(stream) for stream in streams]
            for _, event in heapq.merge(*streams, key=lambda pair: pair[0]):
                yield event

    def tables(self) -> Iterator[EventTable]:
        """The same recordings as arrays, one after another: for those who count, and need no order."""
        for files in self.recordings().values():
            for _, path in files:
                try:
                    table = read_table(path)
                except EventError as problem:
                    self.faults.append(str(problem))
                    continue
                self._note(table)
                yield table

    def _events(self, life: int, rank: int, path: Path) -> Iterator[tuple[int, RunEvent]]:
        """Events with the moment at which each was known, which never goes back."""
        try:
            recording = Recording(path)
            began = recording.process.get("started_wall_ns")
            origin = began if isinstance(began, int) else 0
            latest = 0
            for event in recording:
                latest = max(latest, origin + event.time_ns + (event.duration_ns or 0))
                yield latest, RunEvent(life, rank, origin + event.time_ns, event)
        except EventError as problem:
            self.faults.append(str(problem))
            return
        self._note(recording)

    def _note(self, recording: Recording | EventTable) -> None:
        self.lost += recording.lost
        self.torn_bytes += recording.torn_bytes
        self.unclosed += not recording.closed


def run_events(run: str | os.PathLike[str]) -> RunEvents:
    """What all processes of a run recorded."""
    return RunEvents(Path(run) / FOLDER)
