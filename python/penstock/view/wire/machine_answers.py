"""Answers about the machine: what the doctor says, and recordings of events."""

from typing import Any, Literal, TypedDict


class DoctorCheck(TypedDict):
    """One thing that the doctor looked at; ``hint`` says what to do about it, and is empty when nothing needs doing."""

    name: str
    verdict: Literal["ok", "warn", "fail", "info"]
    value: str
    hint: str


class DoctorReport(TypedDict):
    """What the doctor says about the machine that serves the pages."""

    version: str
    checks: list[DoctorCheck]
    examined_ms: int


class RecordingFile(TypedDict):
    """A recording in the list of them."""

    name: str
    bytes: int
    modified_ms: int


class RunRecordings(TypedDict):
    """The newest recordings of a run, by its name in addresses."""

    run: str
    recordings: list[RecordingFile]
    left_out: int


class RecordingList(TypedDict):
    """The newest recordings of the events directory, and those of the runs below the server's folders."""

    directory: str
    recordings: list[RecordingFile]
    left_out: int
    runs: list[RunRecordings]
    runs_left_out: int


class KindRow(TypedDict):
    """All events of one kind; durations are null where no event of it has ended."""

    kind: str
    count: int
    open_count: int
    total_ns: int | None
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None


class TimelineColumns(TypedDict):
    """Events as columns in file order: the position in a column is the event's index.

    ``kind`` counts in ``names``; ``duration_ns`` is null for a point and for a span that never ended, and those are in ``open``.
    """

    names: list[str]
    kind: list[int]
    thread: list[int]
    time_ns: list[int]
    duration_ns: list[int | None]
    open: list[int]


class RecordingDetail(TypedDict):
    """One recording: where it came from, its table by kind, its timeline.

    ``closed`` says whether the recorder stopped in order; it is false while it records and after a kill.
    """

    name: str
    path: str
    process: dict[str, Any]
    lost: int
    torn_bytes: int
    closed: bool
    event_count: int
    length_ns: int
    kinds: list[KindRow]
    kinds_left_out: int
    timeline: TimelineColumns


class EventDetail(TypedDict):
    """One event with its fields; ``cut`` says whether the recorder shortened something to keep the record small."""

    kind: str
    time_ns: int
    duration_ns: int | None
    open: bool
    cut: bool
    thread: int
    fields: dict[str, Any]
