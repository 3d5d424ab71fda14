"""Recordings as arrays: millions of events in a second, where ``Recording`` makes an object of each. Fields of events are not among them."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _rust
from penstock.errors import NotAnEventFile

#: In place of a duration: an event at a moment, and a span whose end is not in the file.
POINT = -1
OPEN = -2


@dataclass(frozen=True, slots=True, eq=False)
class EventTable:
    """Events of one recording in the order in which they ended; spans that never ended come last."""

    path: Path
    #: Who recorded: pid, host, argv, started_wall_ns.
    process: dict[str, Any]
    #: Names of kinds, by the number that ``kind`` has for them.
    kinds: tuple[str, ...]
    kind: npt.NDArray[np.uint32]
    #: When it happened or began, in nanoseconds since the recording began.
    time_ns: npt.NDArray[np.uint64]
    #: How long it took, ``POINT`` or ``OPEN``.
    duration_ns: npt.NDArray[np.int64]
    thread: npt.NDArray[np.uint32]
    #: Events that the recorder had to drop, as far as the file says.
    lost: int
    torn_bytes: int
    #: Whether the recorder was stopped in order.
    closed: bool

    def __len__(self) -> int:
        return len(self.kind)


def read_table(path: str | os.PathLike[str]) -> EventTable:
    """Read a recording. Raises ``NotAnEventFile`` when the file is something else."""
    place = Path(path)
    file = _rust.EventColumns(place)
    try:
        process = json.loads(file.header)
    except ValueError as reason:
        raise NotAnEventFile(path=place, reason="its header is not JSON") from reason
    columns = file.columns()
    return EventTable(
        path=place,
        process=process,
        kinds=tuple(file.kinds),
        kind=np.frombuffer(columns["kind"], np.uint32),
        time_ns=np.frombuffer(columns["time_ns"], np.uint64),
        duration_ns=np.frombuffer(columns["duration_ns"], np.int64),
        thread=np.frombuffer(columns["thread"], np.uint32),
        lost=file.lost,
        torn_bytes=file.torn_bytes,
        closed=file.closed,
    )
