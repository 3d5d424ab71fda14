"""Logs of several workers in the order of time.

The index beside a log (``moments``) says where its streams were at which moments. All lines that begin between two of these places have the
moment of the first one, so a log is a sequence of dated chunks, and merging chunks costs as little as reading them.
"""

import heapq
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple

from penstock.process.job.catalogue import Job
from penstock.process.logs.reader import STREAMS, Gap, Piece, Reader, Worker
from penstock.process.logs.since import RECORD, index_path

_NUMBERS = RECORD.size // 8


class Dated(NamedTuple):
    """A part of a log and the moment from which on it was written."""

    #: Milliseconds since 1970; 0 where nobody knows.
    at_ms: int
    part: Piece | Gap


@dataclass(frozen=True)
class Index:
    """The moments of one worker."""

    #: Four numbers for each record, as the file has them.
    numbers: memoryview

    @classmethod
    def of(cls, job: Job, worker: Worker) -> "Index":
        """What is written now; nothing when there is none."""
        try:
            with index_path(job, worker).open("rb") as file:
                # A record that is being written is left out.
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                whole = len(mapped) // RECORD.size * RECORD.size
                return cls(memoryview(mapped)[:whole].cast("Q"))
        except (OSError, ValueError):
            return cls(memoryview(b"").cast("Q"))

    def record(self, stream: str, offset: int) -> int:
        """The number of the last record at or before a place in a stream; -1 when the place is before all."""
        column = 1 + STREAMS.index(stream)
        low, high = 0, len(self.numbers) // _NUMBERS
        while low < high:
            middle = (low + high) // 2
            if self.numbers[middle * _NUMBERS + column] <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def at_ms(self, record: int) -> int:
        """The moment of a record."""
        count = len(self.numbers) // _NUMBERS
        return int(self.numbers[max(record, 0) * _NUMBERS]) if count else 0

    def next_place(self, record: int, stream: str) -> int | None:
        """Where the stream was at the record after this one, if there is one."""
        at = (record + 1) * _NUMBERS + 1 + STREAMS.index(stream)
        return int(self.numbers[at]) if at < len(self.numbers) else None


def in_order(job: Job, reader: Reader, *, whole_lines: bool = True) -> Iterator[Dated]:
    """What is new in all logs of a reader, by time; what has the same time by worker."""
    logs = reader.logs(whole_lines=whole_lines)
    indexes: dict[Worker, Index] = {}

    def keyed(number: int, log: Iterator[Piece | Gap]) -> Iterator[tuple[int, int, Dated]]:
        newest_ms = 0
        for part in log:
            if part.worker not in indexes:
                indexes[part.worker] = Index.of(job, part.worker)
            for entry in _dated(part, indexes[part.worker]):
                # A clock that was set back must not put lines of one log out of order.
                newest_ms = max(newest_ms, entry.at_ms)
                yield newest_ms, number, entry

    for _, _, dated in heapq.merge(*starmap(keyed, enumerate(logs)), key=lambda item: item[:2]):
        yield dated


def _dated(part: Piece | Gap, index: Index) -> Iterator[Dated]:
    """A piece, cut where lines begin that have another moment."""
    if isinstance(part, Gap):
        yield Dated(index.at_ms(index.record(part.stream, part.offset)), part)
        return
    content, begin = part.content, 0
    while begin < len(content):
        record = index.record(part.stream, part.offset + begin)
        place, end = index.next_place(record, part.stream), len(content)
        if place is not None and place < part.offset + len(content):
            # A line that goes on at the place of the next record began before it.
            end = content.find(b"\n", place - part.offset - 1) + 1 or len(content)
        yield Dated(
            index.at_ms(record), Piece(part.worker, part.stream, part.offset + begin, content[begin:end])
        )
        begin = end
