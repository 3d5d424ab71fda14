"""Logs of many hosts while they are written, for somebody on one of them.

One connection to the coordinator of this host carries everything. Each host that is followed has a sender (``log_sender``); it is told once a
second that somebody follows, and what was received. Places are kept here by log, so that a host which was cut off, a sender that begins
again, or a frame that was lost costs nothing: the sender goes on where the received bytes end. A host that is lost or silent is named.
"""

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from penstock.errors import JobSilent, PenstockError
from penstock.process.job.catalogue import FINAL, Job
from penstock.process.job.control import HOST_SOCKET
from penstock.process.questions.host_choice import Hosts
from penstock.process.questions.host_sets import fold
from penstock.process.questions.log_frames import (
    BEAT_S,
    WINDOW_BYTES,
    WINDOW_BYTES_MIN,
    Followed,
    FrameSocket,
    LogHead,
    LogPart,
    Told,
    opened,
)

#: A host that says nothing for so long is named; it says something each second.
SILENT_S = 3.5
#: How often the hosts of the job are looked up.
TABLE_S = 3.0
#: How long a coordinator may be away that is started again.
CONNECT_S = 15.0
CONNECT_LOOK_S = 0.1
#: A pause of this process, as under Ctrl-Z, is no silence of others.
PAUSE_S = 1.0


class Chunk(NamedTuple):
    """Something that was written, or that it is missing."""

    part: LogPart
    content: memoryview


class Note(NamedTuple):
    """Something about hosts that people should know."""

    words: str


@dataclass
class _Source:
    """One host, as far as it is followed."""

    name: str
    #: Since when it is waited for, or when it was heard last.
    heard_at: float
    run: str = ""
    source: str = ""
    attempt: int = 0
    #: Frames and bytes of this attempt that came.
    number: int = 0
    received: int = 0
    #: Of these bytes, what the host knows of.
    acknowledged: int = 0
    was_heard: bool = False
    is_named: bool = False
    is_at_rest: bool = False
    #: The job is over there, and everything has come.
    is_over: bool = False
    #: What was there when it began has come.
    is_caught_up: bool = False
    is_refused: bool = False
    #: It has its place since a moment ago, so all that it wrote is new.
    is_fresh: bool = False
    #: Senders that are over.
    past: set[str] = field(default_factory=set)

    def begin(self, attempt: int) -> None:
        """Have it sent again from where it is."""
        self.attempt, self.number, self.received, self.acknowledged = attempt, 0, 0, 0


@dataclass
class LogStream:
    """A subscription. ``chosen`` says which hosts it is for, anew whenever hosts change."""

    job: Job
    followed: Followed
    chosen: Callable[[], tuple[Hosts, list[int]]]
    _sources: dict[int, _Source] = field(default_factory=dict)
    #: Where the logs of a start of a host go on.
    _places: dict[str, dict[str, int]] = field(default_factory=dict)
    _number: int = 0
    #: What was found out is to be told at once.
    _repeats: bool = False
    #: Something that was written may not have come.
    is_cut: bool = False
    _table: tuple[Hosts, list[int]] | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def is_caught_up(self) -> bool:
        """Whether all that was written before has come, from every host that is heard."""
        done = [
            source.is_caught_up or source.is_named or source.is_refused for source in self._sources.values()
        ]
        return bool(done) and all(done)

    def __iter__(self) -> Iterator[Chunk | Note | None]:
        """What comes; nothing now and then, so that whoever shows it can do so."""
        self._table = self._first_table()
        yield from self._take_table()
        looking = threading.Thread(target=self._look_up, name="penstock-hosts", daemon=True)
        looking.start()
        try:
            while not self._is_over():
                with contextlib.suppress(EOFError, OSError), self._connected() as talk:
                    yield from self._follow(FrameSocket(talk))
                if self._is_over() or self.job.phase() in (*FINAL, "lost"):
                    break
                yield Note("the coordinator of this host does not answer; connecting again")
        finally:
            self._ended.set()
        missing = [
            source.name
            for source in self._sources.values()
            if not source.is_at_rest and not source.is_refused
        ]
        if missing:
            self.is_cut = True
            yield Note(f"the job is over; the last lines of {fold(missing)} may be missing")

    def _first_table(self) -> tuple[Hosts, list[int]]:
        """A job that begins has no hosts yet."""
        until = time.monotonic() + CONNECT_S
        while True:
            try:
                return self.chosen()
            except JobSilent:
                if time.monotonic() > until or self.job.phase() not in ("starting", "waiting"):
                    raise
            self._ended.wait(CONNECT_LOOK_S)

    def _is_over(self) -> bool:
        """Whether nothing will come any more: every host has said so, or does not take part."""
        over = [source.is_refused or source.is_over for source in self._sources.values()]
        return bool(over) and all(over)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        until = time.monotonic() + CONNECT_S
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as talk:
            while True:
                folder = os.open(self.job.directory, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    talk.connect(f"/proc/self/fd/{folder}/{HOST_SOCKET}")
                    break
                except OSError as problem:
                    if self.job.phase() in (*FINAL, "lost"):
                        raise
                    if time.monotonic() > until:
                        reason = problem.strerror or str(problem)
                        raise JobSilent(job=self.job.id, reason=reason) from problem
                finally:
                    os.close(folder)
                self._ended.wait(CONNECT_LOOK_S)
            talk.sendall(b'{"follow":true}\n')
            yield talk

    def _look_up(self) -> None:
        """Which hosts there are, again and again: a question may wait for its patience."""
        while not self._ended.wait(TABLE_S):
            # Where nobody is heard who knows, the hosts are those that they were.
            with contextlib.suppress(PenstockError):
                self._table = self.chosen()

    def _take_table(self) -> Iterator[Note]:
        if self._table is None:
            return
        (hosts, wanted), self._table = self._table, None
        now = time.monotonic()
        for rank in wanted:
            if rank not in self._sources:
                self._sources[rank] = _Source(hosts.rows[rank].name, now)
        for rank in sorted(self._sources.keys() - set(wanted)):
            yield Note(f"{self._sources.pop(rank).name} has none of these ranks any more")

    def _follow(self, talk: FrameSocket) -> Iterator[Chunk | Note | None]:
        repeat_at = looked_at = time.monotonic()
        is_open = False
        while not self._is_over():
            now = time.monotonic()
            if now - looked_at > PAUSE_S:
                for source in self._sources.values():
                    source.heard_at += now - looked_at
            looked_at = now
            yield from self._take_table()
            if is_open and (now >= repeat_at or self._repeats):
                self._repeats = False
                self._tell(talk, self._sources, with_places=True)
                repeat_at = now + BEAT_S
            yield from self._silent(now)
            ready, _, _ = select.select([talk], [], [], 0.05)
            for body in talk.receive() if ready else ():
                head, content = opened(body)
                is_open = is_open or head.ok
                yield from self._take(head, content, len(body))
            window = self._window()
            behind = {
                rank: source
                for rank, source in self._sources.items()
                if source.received - source.acknowledged > window // 4
            }
            if behind:
                self._tell(talk, behind, with_places=False)
            yield None

    def _window(self) -> int:
        return max(WINDOW_BYTES // max(len(self._sources), 1), WINDOW_BYTES_MIN)

    def _tell(self, talk: FrameSocket, sources: dict[int, _Source], *, with_places: bool) -> None:
        self._number += 1
        words: list[tuple[int, Told]] = []
        for rank, source in sources.items():
            source.acknowledged = source.received
            places = self._places.get(source.source, {}) if with_places and source.run else None
            words.append(
                (
                    rank,
                    Told(
                        run=source.run,
                        attempt=source.attempt,
                        received=source.received,
                        window=self._window(),
                        places=places,
                        fresh=source.is_fresh,
                    ),
                )
            )
        talk.send(msgspec.json.encode({"number": self._number, "what": self.followed, "told": words}))

    def _silent(self, now: float) -> Iterator[Note]:
        for source in self._sources.values():
            if not source.is_named and not source.is_refused and now - source.heard_at > SILENT_S:
                source.is_named = True
                yield Note(f"{source.name} is not heard; its lines come when it is")

    def _take(self, head: LogHead, content: memoryview, size: int) -> Iterator[Chunk | Note]:
        if head.refused:
            yield from self._refused(head)
            return
        source = self._sources.get(head.rank)
        if source is None or head.ok:
            return
        source.heard_at = time.monotonic()
        if source.is_named:
            source.is_named = False
            yield Note(f"{head.name} is heard {'again' if source.was_heard else 'now'}")
        if head.run in source.past:
            return
        if head.run != source.run:
            yield from self._meet(source, head)
        source.was_heard = True
        if not head.parts and (head.attempt, head.number) == (source.attempt, source.number):
            # It has sent no more than what has come, so it is true here, too.
            source.is_caught_up = True
            source.is_at_rest, source.is_over = head.at_rest, head.is_over
            # It ends when it knows that all of it came.
            self._repeats = self._repeats or head.is_over
        elif head.parts:
            source.is_at_rest = False
        if head.attempt == source.attempt and head.number > source.number:
            source.begin(source.attempt + 1)
            self._repeats = True
        elif head.attempt == source.attempt and head.number == source.number and head.parts:
            source.number += 1
            source.received += size
            yield from self._chunks(source, head, content)

    def _meet(self, source: _Source, head: LogHead) -> Iterator[Note]:
        """Another sender of a host begins, or that of another host in its place."""
        if source.source not in ("", head.source):
            yield Note(f"{head.name} has host rank {head.rank} now" + _instead(source.name, head.name))
            source.is_fresh = True
        if source.run:
            source.past.add(source.run)
        source.run, source.source, source.name = head.run, head.source, head.name
        source.is_at_rest = source.is_over = False
        source.begin(1)
        self._repeats = True

    def _chunks(self, source: _Source, head: LogHead, content: memoryview) -> Iterator[Chunk]:
        places = self._places.setdefault(source.source, {})
        begin = 0
        for part in head.parts:
            yield Chunk(part, content[begin : begin + part.length])
            begin += part.length
            places[part.log] = part.end

    def _refused(self, head: LogHead) -> Iterator[Note]:
        source = self._sources.get(head.rank)
        if source is None:
            raise JobSilent(job=self.job.id, reason=head.refused)
        source.is_refused = self.is_cut = True
        yield Note(f"{source.name}: {head.refused}")


def _instead(before: str, now: str) -> str:
    return "" if before == now else f", in place of {before}"
