"""``python -m penstock.process.questions.log_sender DIRECTORY``: sends the logs of one host to whoever follows them.

The coordinator starts it for one subscription and ends it with that. Its standard input is a socket: words of who follows come in, frames go
out. It reads no further than the other end allows, and a worker that writes never waits for it: what it has not read yet is in the files.
"""

import contextlib
import os
import re
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import msgspec

from penstock.errors import PenstockError
from penstock.process.job.catalogue import Job
from penstock.process.logs.chronology import Dated, in_order
from penstock.process.logs.reader import (
    STREAMS,
    Gap,
    Reader,
    Worker,
    last_lines_place,
    segments,
    workers,
)
from penstock.process.logs.since import places_since
from penstock.process.questions.log_frames import (
    BEAT_S,
    CONTENT_BYTES_MAX,
    FINISH,
    Followed,
    FrameSocket,
    LogHead,
    LogPart,
    Told,
    Word,
    frame,
)
from penstock.process.questions.number_ranges import numbers_in
from penstock.process.questions.task_parts import first_ranks

#: Between two looks while nothing is written.
LOOK_S = 0.05
#: What searching one piece may take: an expression may take for ever, and who follows is told within the time of a silent host.
SEARCH_S = 2.0
#: Ranks and the machine come first.
NICENESS = 10

Places = dict[tuple[Worker, str], int]
Sent = tuple[LogPart, bytes]


class _ChangedError(Exception):
    """Who follows wants something else from now on."""


class _OverError(Exception):
    """The job ends on this host, or nobody follows any more."""


class _SearchLateError(Exception):
    """An expression takes too long."""


class LogSender:
    """The logs of a host for one subscription."""

    def __init__(self, job: Job, talk: FrameSocket) -> None:
        self._job = job
        self._talk = talk
        host = job.host_file() or {}
        self._me = LogHead(
            name=str(host.get("name", "")), source=str(host.get("host", "")), run=os.urandom(8).hex()
        )
        self._word: Word | None = None
        #: What the present attempt is: changed when it is to begin anew.
        self._attempt = -1
        self._number = 0
        self._sent_bytes = 0
        self._places: Places = {}
        self._first: dict[str, int] = {}
        self._pattern: re.Pattern[bytes] | None = None
        #: Of the matching lines that are there already, only so many of each log.
        self._tail: int | None = None
        self._beat_at = 0.0
        #: The job is over, so what is in the logs is all.
        self._ends = False
        self._said_all = False
        #: All who are followed here have ended, and what they wrote is sent.
        self._at_rest = False

    def run(self) -> None:
        """Until nobody follows any more, or the job is over and everything was received."""
        with contextlib.suppress(_OverError, BrokenPipeError):
            while True:
                try:
                    self._serve()
                    return
                except _ChangedError:
                    continue

    def _serve(self) -> None:
        """One attempt; returns when nothing is left to do."""
        self._said_all = False
        while not (self._said_all and self._received() >= self._sent_bytes):
            self._listen(LOOK_S)
            word = self._word
            if (
                word is None
                or word.told.run != self._me.run
                or (word.told.places is None and word.told.attempt != self._attempt)
            ):
                self._beat()
                continue
            if word.told.attempt != self._attempt:
                self._begin(word)
            # Whoever has ended has written everything before that.
            ends, chosen, at_rest = self._ends, self._chosen(word.what), self._is_at_rest()
            while self._send_new(word, chosen, last=ends):
                self._listen(0.0)
            if ends and not self._said_all:
                self._said_all, self._at_rest, self._beat_at = True, True, 0.0
            elif at_rest != self._at_rest:
                self._at_rest, self._beat_at = at_rest, 0.0
            self._beat()

    def _begin(self, word: Word) -> None:
        progress, what = word.told, word.what
        self._pattern = None if what.pattern is None else re.compile(what.pattern.encode())
        self._attempt, self._number, self._sent_bytes = progress.attempt, 0, 0
        self._places = {}
        chosen = self._chosen(what)
        known = progress.places or {}
        asked = {} if progress.fresh else self._asked_places(what, chosen)
        self._tail = what.tail if self._pattern is not None and not known and not progress.fresh else None
        for worker in chosen:
            for stream in what.streams:
                begin = asked.get((worker, stream), 0)
                self._places[worker, stream] = known.get(f"{worker.name}.{stream}", begin)

    def _asked_places(self, what: Followed, chosen: list[Worker]) -> Places:
        places = places_since(self._job, chosen, what.since) if what.since is not None else {}
        if what.tail is not None and self._pattern is None:
            there = segments(self._job)
            for worker in chosen:
                for stream in STREAMS:
                    tail = last_lines_place(there.get(f"{worker.name}.{stream}", []), what.tail)
                    places[worker, stream] = max(places.get((worker, stream), 0), tail)
        return places

    def _chosen(self, what: Followed) -> list[Worker]:
        """Workers of this host that are followed now."""
        self._first = first_ranks(self._job.state())
        wanted = None if what.ranks is None else set(numbers_in(what.ranks))
        return [
            worker
            for worker in workers(self._job)
            if what.role in (None, worker.role)
            and (wanted is None or self._first.get(worker.role, 0) + worker.rank in wanted)
        ]

    def _is_at_rest(self) -> bool:
        state = self._job.state()
        return state is not None and all(
            worker["exit"] is not None for gang in state.gangs for worker in gang.workers
        )

    def _send_new(self, word: Word, chosen: list[Worker], *, last: bool = False) -> bool:
        """Send what was written since; whether anything was."""
        streams = word.what.streams
        new = [worker for worker in chosen if (worker, streams[0]) not in self._places]
        if new:
            # Numbers of ranks have changed, so these were not followed before: what they write now counts.
            newest = places_since(self._job, new, "incarnation")
            for worker in new:
                for stream in streams:
                    self._places[worker, stream] = newest.get((worker, stream), 0)
        if not chosen:
            return False
        reader = Reader(self._job, chosen, streams, places=dict(self._places))
        parts_written = self._parts(
            in_order(self._job, reader, whole_lines=not last and not word.what.raw), word.told
        )
        if self._tail is not None:
            parts_written, self._tail = _newest(parts_written, self._tail), None
        parts: list[LogPart] = []
        contents: list[bytes] = []
        size, any_part = 0, False
        for part, content in parts_written:
            if size + len(content) > CONTENT_BYTES_MAX and parts:
                self._send(parts, contents)
                parts, contents, size = [], [], 0
            parts.append(part)
            contents.append(content)
            size += len(content) + 100
            any_part = True
        if parts:
            self._send(parts, contents)
        return any_part

    def _parts(self, dated: Iterator[Dated], progress: Told) -> Iterator[Sent]:
        for at_ms, part in dated:
            worker, stream, moment = part.worker, part.stream, at_ms + progress.clock_ms if at_ms else 0
            rank = self._first.get(worker.role, 0) + worker.rank
            if isinstance(part, Gap):
                end = part.offset + part.byte_count
                gap = "removed" if part.removed else "unwritten"
                yield LogPart(worker.role, rank, worker.rank, stream, moment, part.offset, end, 0, gap), b""
                self._places[worker, stream] = end
                continue
            for offset, content in self._wanted(part.offset, part.content):
                end = offset + len(content)
                yield (
                    LogPart(worker.role, rank, worker.rank, stream, moment, offset, end, len(content)),
                    content,
                )
                self._places[worker, stream] = end
            self._places[worker, stream] = part.offset + len(part.content)

    def _wanted(self, offset: int, content: bytes) -> Iterator[tuple[int, bytes]]:
        """Pieces that are not too long for a frame; with an expression, lines that match."""
        if self._pattern is None:
            for place in range(0, len(content), CONTENT_BYTES_MAX):
                yield offset + place, content[place : place + CONTENT_BYTES_MAX]
            return
        matching: list[tuple[int, bytes]] = []
        signal.setitimer(signal.ITIMER_REAL, SEARCH_S)
        lines = content.split(b"\n")
        # Nothing stands behind the last newline.
        for line in lines[:-1] if not lines[-1] else lines:
            if self._pattern.search(line):
                matching.append((offset, line + b"\n"))
            offset += len(line) + 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        for begin, line in matching:
            for place in range(0, len(line), CONTENT_BYTES_MAX):
                yield begin + place, line[place : place + CONTENT_BYTES_MAX]

    def _send(self, parts: list[LogPart], contents: list[bytes]) -> None:
        """One frame, when it may be on its way."""
        word = self._word
        assert word is not None
        head = msgspec.structs.replace(
            self._me, rank=word.rank, attempt=self._attempt, number=self._number, parts=parts
        )
        body = frame(head, contents)
        while self._sent_bytes > 0 and self._sent_bytes + len(body) > self._received() + word.told.window:
            self._listen(LOOK_S)
            self._beat()
        self._talk.send(body)
        self._number += 1
        self._sent_bytes += len(body)
        self._listen(0.0)
        self._beat()

    def refuse(self, why: str) -> None:
        """Say why nothing comes, until nobody follows: the coordinator would start another sender."""
        rank = self._word.rank if self._word is not None else -1
        with contextlib.suppress(OSError, EOFError):
            self._talk.send(frame(msgspec.structs.replace(self._me, rank=rank, refused=why)))
            while True:
                for _ in self._talk.receive():
                    pass

    def _received(self) -> int:
        return self._word.told.received if self._word is not None else 0

    def _beat(self) -> None:
        """Say who is here, and how far it is."""
        now = time.monotonic()
        if self._word is not None and now >= self._beat_at:
            self._beat_at = now + BEAT_S
            me = msgspec.structs.replace(
                self._me, rank=self._word.rank, at_rest=self._at_rest, is_over=self._said_all
            )
            self._talk.send(frame(msgspec.structs.replace(me, attempt=self._attempt, number=self._number)))

    def _listen(self, patience_s: float) -> None:
        """Take what who follows says."""
        ready, _, _ = select.select([self._talk], [], [], patience_s)
        if not ready:
            return
        try:
            for body in self._talk.receive():
                if body == FINISH:
                    self._ends = True
                    continue
                word = msgspec.json.decode(body, type=Word)
                known = self._word
                if word.told.run in ("", self._me.run) or known is None:
                    self._word = word
        except (EOFError, OSError) as problem:
            raise _OverError from problem
        newest_word = self._word.told if self._word is not None else None
        changed = (
            newest_word is not None
            and newest_word.attempt != self._attempt
            and newest_word.places is not None
        )
        if changed and self._attempt >= 0:
            raise _ChangedError


def _newest(parts_written: Iterator[Sent], count: int) -> Iterator[Sent]:
    """The last of each log, in order of time."""
    kept: dict[str, deque[Sent]] = {}
    for part, content in parts_written:
        kept.setdefault(part.log, deque(maxlen=count)).append((part, content))
    yield from sorted((entry for log in kept.values() for entry in log), key=lambda entry: entry[0].at_ms)


def _search_late(_number: int, _frame: FrameType | None) -> None:
    raise _SearchLateError


def main() -> int:
    """Send until nobody follows."""
    os.nice(NICENESS)
    signal.signal(signal.SIGALRM, _search_late)
    sender = LogSender(Job(Path(sys.argv[1])), FrameSocket(socket.socket(fileno=os.dup(0))))
    try:
        sender.run()
    except _SearchLateError:
        sender.refuse("the search took too long and was ended")
    except (PenstockError, msgspec.MsgspecError, re.error) as problem:
        sender.refuse(str(problem))
    return 0


if __name__ == "__main__":
    with contextlib.suppress(EOFError):
        sys.exit(main())
