"""Event recordings as a page shows them: a list of files, and one file as a table and a timeline.

Everything here is a pure reading of files and of ``penstock.events`` values; no HTTP. Two ideas:
a name from a URL is only ever compared with the rule for direct children of one directory, so no
path can lead out of it; and every answer has a stated upper size, with what was left out counted.
"""

import math
import os
import stat
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.events import Event, Recording
from penstock.report.recording import KindSummary, KindTally
from penstock.view.wire.machine_answers import (
    EventDetail,
    KindRow,
    RecordingDetail,
    RecordingFile,
    RecordingList,
    TimelineColumns,
)

SUFFIX = ".pev"
RECORDINGS_MAX = 1_000
"""Files listed at most, newest first."""
RUNS_MAX = 100
"""Runs whose recordings are listed at most, newest first."""
OF_A_RUN_MAX = 64
"""Recordings of one run in the list of all at most; the page of the run has more."""
TIMELINE_MAX = 200_000
"""Events sent for the timeline at most: about 8 MB of JSON, and what a canvas draws in one frame."""
KINDS_MAX = 1_000
"""Rows of the table by kind at most."""
TEXT_MAX = 10_000
"""Characters of one field value at most."""
INTEGER_MAX = 2**53 - 1
"""Largest integer that a browser keeps exact; a larger one travels as text."""


def is_recording_name(name: str) -> bool:
    """Whether `name` can be a direct child of the events directory that we agree to read."""
    bare = os.path.basename(name) == name and "\\" not in name and not name.startswith(".")
    return bare and name.endswith(SUFFIX) and name.isprintable() and len(name) <= 255


def find_recording(directory: Path, name: str) -> Path | None:
    """The file called `name` directly inside `directory`, or None when there is no such regular file.

    Links are refused as well: one could point out of the directory, and a pipe would block forever.
    """
    if not is_recording_name(name):
        return None
    path = directory / name
    try:
        is_file = stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return None
    return path if is_file else None


def recordings_in(directory: Path) -> list[RecordingFile]:
    """Name, size and time of the recordings in `directory`, newest first; a missing directory has none."""
    rows: list[RecordingFile] = []
    names = os.listdir(directory) if directory.is_dir() else []
    for name in names:
        path = find_recording(directory, name)
        if path is None:
            continue
        try:
            status = path.lstat()
        except FileNotFoundError:  # removed since it was listed
            continue
        rows.append({"name": name, "bytes": status.st_size, "modified_ms": status.st_mtime_ns // 1_000_000})
    return sorted(rows, key=lambda row: (-row["modified_ms"], row["name"]))


def list_recordings(directory: Path, runs: Iterable[tuple[str, Path]] = ()) -> RecordingList:
    """The newest recordings in `directory`, and those of runs, given by name and folder, newest first."""
    rows = recordings_in(directory)
    of_runs = [(name, files) for name, folder in runs if (files := recordings_in(folder))]
    of_runs.sort(key=lambda run: (-run[1][0]["modified_ms"], run[0]))
    return {
        "directory": as_text(str(directory)),
        "recordings": rows[:RECORDINGS_MAX],
        "left_out": max(0, len(rows) - RECORDINGS_MAX),
        "runs": [
            {
                "run": as_text(name),
                "recordings": files[:OF_A_RUN_MAX],
                "left_out": max(0, len(files) - OF_A_RUN_MAX),
            }
            for name, files in of_runs[:RUNS_MAX]
        ],
        "runs_left_out": max(0, len(of_runs) - RUNS_MAX),
    }


def describe_recording(recording: Recording) -> RecordingDetail:
    """One recording as its page shows it: where it came from, the table by kind, the timeline.

    The events are read once; the recording knows its losses and its tear only after that.
    """
    timeline = _Timeline()
    tally = KindTally()
    event_count = 0
    length_ns = 0
    for event in recording:
        event_count += 1
        length_ns = max(length_ns, event.time_ns + (event.duration_ns or 0))
        tally.add(event)
        if event_count <= TIMELINE_MAX:
            timeline.add(event)
    kinds = tally.summaries()
    return {
        "name": recording.path.name,
        "path": as_text(str(recording.path)),
        "process": {str(key): as_plain(value) for key, value in recording.process.items()},
        "lost": recording.lost,
        "torn_bytes": recording.torn_bytes,
        "closed": recording.closed,
        "event_count": event_count,
        "length_ns": length_ns,
        "kinds": [_row(kind) for kind in kinds[:KINDS_MAX]],
        "kinds_left_out": max(0, len(kinds) - KINDS_MAX),
        "timeline": timeline.columns(),
    }


def describe_event(recording: Recording, index: int) -> EventDetail | None:
    """The event at `index` in file order with its fields, or None past the end."""
    event = next(islice(recording, index, None), None)
    if event is None:
        return None
    return {
        "kind": as_text(event.kind),
        "time_ns": event.time_ns,
        "duration_ns": event.duration_ns,
        "open": event.open,
        "cut": event.cut,
        "thread": event.thread,
        "fields": {as_text(str(key)): as_plain(value) for key, value in event.fields.items()},
    }


def as_plain(value: object) -> Any:
    """`value` as something that JSON and a browser keep exactly: large or odd values become text."""
    if value is None or isinstance(value, bool | str):
        return as_text(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return value if abs(value) <= INTEGER_MAX else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in islice(value, TEXT_MAX)]
    return as_text(value.hex() if isinstance(value, bytes) else str(value))


def as_text(text: str) -> str:
    """`text` cut to a stated length, with lone surrogates (bytes that are not UTF-8) spelled out."""
    cut = text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"
    return cut.encode("utf-8", "backslashreplace").decode("utf-8")


class _Timeline:
    """Events as columns, in file order: the position in each column is the event's index."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._kind: list[int] = []
        self._thread: list[int] = []
        self._time_ns: list[int] = []
        self._duration_ns: list[int | None] = []
        self._open: list[int] = []

    def add(self, event: Event) -> None:
        if event.open:
            self._open.append(len(self._kind))
        self._kind.append(self._numbers.setdefault(event.kind, len(self._numbers)))
        self._thread.append(event.thread)
        self._time_ns.append(event.time_ns)
        self._duration_ns.append(event.duration_ns)

    def columns(self) -> TimelineColumns:
        return {
            "names": _texts(self._numbers),
            "kind": self._kind,
            "thread": self._thread,
            "time_ns": self._time_ns,
            "duration_ns": self._duration_ns,
            "open": self._open,
        }


def _texts(names: Iterable[str]) -> list[str]:
    return [as_text(name) for name in names]


def _row(summary: KindSummary) -> KindRow:
    return {
        "kind": as_text(summary.kind),
        "count": summary.count,
        "open_count": summary.open_count,
        "total_ns": summary.total_ns,
        "p50_ns": summary.p50_ns,
        "p99_ns": summary.p99_ns,
        "max_ns": summary.max_ns,
    }
