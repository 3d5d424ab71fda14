"""Logs of a job: every byte of every worker, with the place where it stands in its stream.

A log is one file or several segments; the name of a segment says where it begins (``rank-3.stdout`` at 0, ``rank-3.stdout.0000000000012345`` there).
What no segment covers is missing: removed because the job keeps only the newest segments, or never written for want of space.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.process.job.catalogue import Job

STREAMS = ("stdout", "stderr")
PIECE_BYTES = 1 << 20
#: Backwards, when only the end is wanted.
BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, order=True)
class Worker:
    """One process of a job: its role and its rank there."""

    role: str
    rank: int

    @property
    def name(self) -> str:
        """As in names of files."""
        return f"{self.role}-{self.rank}"


@dataclass(frozen=True)
class Piece:
    """Consecutive bytes of one stream of one worker."""

    worker: Worker
    stream: str
    #: Where in the stream the bytes begin.
    offset: int
    content: bytes


@dataclass(frozen=True)
class Gap:
    """Bytes of a stream that are not there."""

    worker: Worker
    stream: str
    offset: int
    byte_count: int
    #: Whether they were removed; else they never fitted on the disk.
    removed: bool


@dataclass(frozen=True)
class Segment:
    """A file of a log."""

    begin: int
    end: int
    path: str


def workers(job: Job) -> list[Worker]:
    """All workers of a job, in order of roles and ranks."""
    roles = job.description()["roles"]
    return [Worker(role["name"], rank) for role in roles for rank in range(role["ranks"])]


def log_path(job: Job, worker: Worker, stream: str) -> Path:
    """The first segment of a log: the whole of it, if the job does not cut logs."""
    return job.directory / "logs" / f"{worker.name}.{stream}"


def segments(job: Job) -> dict[str, list[Segment]]:
    """The segments of every log that there are now, in order, by ``ROLE-RANK.stream``."""
    by_log: dict[str, list[Segment]] = {}
    try:
        entries = list(os.scandir(job.directory / "logs"))
    except FileNotFoundError:
        return by_log
    for entry in entries:
        stem, _, last = entry.name.rpartition(".")
        name, begin = (stem, int(last)) if last.isdecimal() else (entry.name, 0)
        try:
            end = begin + entry.stat().st_size
        except FileNotFoundError:
            continue
        by_log.setdefault(name, []).append(Segment(begin, end, entry.path))
    return {
        name: _settled(sorted(log_segments, key=lambda segment: segment.begin))
        for name, log_segments in by_log.items()
    }


def _settled(there: list[Segment]) -> list[Segment]:
    """A segment that was written to while we looked has its last size once there is a later one."""
    settled = []
    for at, segment in enumerate(there):
        if at + 1 < len(there) and segment.end < there[at + 1].begin:
            try:
                segment = replace(segment, end=segment.begin + os.stat(segment.path).st_size)
            except FileNotFoundError:
                continue
        settled.append(segment)
    return settled


def _runs(there: list[Segment]) -> Iterator[list[Segment]]:
    """Segments that follow each other without a gap."""
    run: list[Segment] = []
    for segment in there:
        if run and run[-1].end != segment.begin:
            yield run
            run = []
        run.append(segment)
    if run:
        yield run


def _read(run: list[Segment], place: int, count: int) -> bytes:
    """Bytes of a run; fewer when a segment of it was removed meanwhile."""
    content = bytearray()
    for segment in run:
        at = place + len(content)
        if segment.begin <= at < segment.end and len(content) < count:
            try:
                with open(segment.path, "rb") as file:
                    file.seek(at - segment.begin)
                    content += file.read(min(count - len(content), segment.end - at))
            except FileNotFoundError:
                break
    return bytes(content)


class Reader:
    """Reads logs on from where it was. ``places`` says where to begin; logs that are not named there begin at 0."""

    def __init__(
        self,
        job: Job,
        chosen: Sequence[Worker],
        streams: Sequence[str] = STREAMS,
        *,
        places: dict[tuple[Worker, str], int] | None = None,
    ) -> None:
        self._job = job
        self._places = {
            (worker, stream): (places or {}).get((worker, stream), 0)
            for worker in chosen
            for stream in streams
        }
        self._removes = bool(job.description().get("segments_kept"))

    def pieces(self, *, whole_lines: bool = True) -> Iterator[Piece | Gap]:
        """What is new since the last call, one log after the other; a line whose end is not written yet comes later."""
        for pieces in self.logs(whole_lines=whole_lines):
            yield from pieces

    def logs(self, *, whole_lines: bool = True) -> list[Iterator[Piece | Gap]]:
        """The same, each log for itself; they may be read by turns."""
        there = segments(self._job)
        # All of them together hold this much.
        piece_bytes = max(PIECE_BYTES // len(self._places), BLOCK_BYTES) if self._places else PIECE_BYTES
        return [
            self._of_log(worker, stream, there.get(f"{worker.name}.{stream}", []), piece_bytes, whole_lines)
            for worker, stream in self._places
        ]

    def _of_log(
        self, worker: Worker, stream: str, there: list[Segment], piece_bytes: int, whole_lines: bool
    ) -> Iterator[Piece | Gap]:
        runs = list(_runs(there))
        for at, run in enumerate(runs):
            # A line that a gap cuts will not get longer.
            whole = whole_lines and at + 1 == len(runs)
            place = self._places[worker, stream]
            if run[0].begin > place:
                missing = run[0].begin - place
                yield Gap(worker, stream, place, missing, removed=self._removes and at == 0)
                self._places[worker, stream] = run[0].begin
            yield from self._of_run(worker, stream, run, piece_bytes, whole)

    def _of_run(
        self, worker: Worker, stream: str, run: list[Segment], piece_bytes: int, whole_lines: bool
    ) -> Iterator[Piece]:
        place = self._places[worker, stream]
        while place < run[-1].end:
            content = _read(run, place, piece_bytes)
            end = content.rfind(b"\n") + 1
            more = place + len(content) < run[-1].end
            if end and (whole_lines or more):
                # What is left of the last line comes with its end.
                content = content[:end]
            if not content or (whole_lines and not end and not more):
                break
            yield Piece(worker, stream, place, content)
            place += len(content)
            self._places[worker, stream] = place


def last_lines_place(there: list[Segment], count: int) -> int:
    """Where the last lines of a log begin that has these segments."""
    # One more: the end of the line before them.
    wanted = count + 1
    at_end = True
    for segment in reversed(there):
        with open(segment.path, "rb") as file:
            place = segment.end
            while place > segment.begin:
                begin = max(segment.begin, place - BLOCK_BYTES)
                file.seek(begin - segment.begin)
                block = file.read(place - begin)
                if at_end and not block.endswith(b"\n"):
                    # The last line has no end yet, and is one of those that are wanted.
                    wanted -= 1
                at_end = False
                newlines = block.count(b"\n")
                if newlines >= wanted:
                    at = len(block)
                    for _ in range(wanted):
                        at = block.rfind(b"\n", 0, at)
                    return begin + at + 1
                wanted -= newlines
                place = begin
    return there[0].begin if there else 0
