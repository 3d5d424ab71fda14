"""``penstock attach`` to a job of many hosts: a screen of what all ranks printed, by time, then their output as it comes.

While somebody is attached to a job whose launcher lost its network, its hosts do not end because of that; who detaches on purpose leaves it
running for good.
"""

import heapq
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from penstock.cli.job.log_lines import Display, GrowingLabels, is_colourful
from penstock.cli.output import check_reader, say
from penstock.cli.questions.follow_on_hosts import TimeOrder
from penstock.cli.run.interrupts import Interrupts
from penstock.errors import PenstockError
from penstock.process.hosts.launcher.attachment import RENEWAL_S
from penstock.process.job.catalogue import Job
from penstock.process.logs.chronology import Dated
from penstock.process.logs.reader import Gap, Piece, Worker
from penstock.process.questions.answers import PATIENCE_S, ask_hosts
from penstock.process.questions.host_choice import Hosts, hosts_of
from penstock.process.questions.log_frames import Followed
from penstock.process.questions.log_stream import Chunk, LogStream, Note

#: A job that writes all the time is shown after this, though a host may not have sent its part of the screen.
SCREEN_S = 5.0


@dataclass
class Screen:
    """The newest lines of all ranks together, until every host has sent its own; then what comes, in order."""

    display: Display
    lines: int
    order: TimeOrder
    begun_s: float
    _newest: list[tuple[int, int, Dated]] = field(default_factory=list)
    _count: int = 0
    _is_shown: bool = False

    def __post_init__(self) -> None:
        self._is_shown = self.lines == 0

    def add(self, dated: Dated, now_s: float) -> None:
        """Something came."""
        part = dated.part
        if self._is_shown:
            size = part.byte_count if isinstance(part, Gap) else len(part.content)
            self.order.add(dated, size, now_s)
            return
        for line in _lines(dated):
            self._count += 1
            heapq.heappush(self._newest, (line.at_ms, self._count, line))
            if len(self._newest) > self.lines:
                heapq.heappop(self._newest)

    def turn(self, now_s: float, *, is_whole: bool, everything: bool = False) -> None:
        """Show what is due; all from before has come, or nothing more will."""
        if not self._is_shown:
            if not is_whole and not everything and now_s < self.begun_s + SCREEN_S:
                return
            self._is_shown = True
            for _, _, dated in sorted(self._newest):
                self.display.show(dated)
            self._newest.clear()
        self.order.release(now_s, everything=everything)
        sys.stdout.flush()


def follow_attached_hosts(job: Job, interrupts: Interrupts, *, lines: int, json: bool) -> bool:
    """Show everything until the job is over; not if the person detached before."""
    roles = [role["name"] for role in job.description()["roles"]]
    display = Display(prefixes=GrowingLabels(roles, colour=is_colourful()), pattern=None, json=json)
    screen = Screen(display, lines, TimeOrder(display.show), time.monotonic())

    def everybody() -> tuple[Hosts, list[int]]:
        hosts = hosts_of(job)
        return hosts, hosts.choose()

    stream = LogStream(job, Followed(tail=lines), everybody)
    with _kept(job):
        for entry in stream:
            now_s = time.monotonic()
            match entry:
                case Chunk():
                    screen.add(_dated(entry), now_s)
                case Note(words):
                    screen.turn(now_s, is_whole=False)
                    say(f"note: {words}")
                case None:
                    screen.turn(now_s, is_whole=stream.is_caught_up)
                    check_reader()
                    if interrupts.want_to_detach(job):
                        screen.turn(now_s, is_whole=True, everything=True)
                        _leave_running(job)
                        return False
        screen.turn(time.monotonic(), is_whole=True, everything=True)
    return True


def _dated(chunk: Chunk) -> Dated:
    part = chunk.part
    worker = Worker(part.role, part.rank)
    if part.gap:
        gap = Gap(worker, part.stream, part.offset, part.end - part.offset, removed=part.gap == "removed")
        return Dated(part.at_ms, gap)
    return Dated(part.at_ms, Piece(worker, part.stream, part.offset, bytes(chunk.content)))


def _lines(dated: Dated) -> Iterator[Dated]:
    """The lines of a part, each by itself; what is missing is none."""
    part = dated.part
    if isinstance(part, Gap):
        return
    offset = part.offset
    for line in part.content.splitlines(keepends=True):
        yield Dated(dated.at_ms, Piece(part.worker, part.stream, offset, line))
        offset += len(line)


@contextmanager
def _kept(job: Job) -> Iterator[None]:
    """For as long as the job is in the foreground, its hosts do not end for want of their launcher. A detached job needs none."""
    if job.description().get("detached"):
        yield
        return
    ended = threading.Event()

    def renew() -> None:
        while True:
            _tell_hosts(job, for_good=False)
            if ended.wait(RENEWAL_S):
                return

    threading.Thread(target=renew, name="penstock-attach", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _leave_running(job: Job) -> None:
    """Somebody detaches: hosts that do not hear their launcher go on without it."""
    if not job.description().get("detached") and _tell_hosts(job, for_good=True):
        say("its launcher is not heard; the job goes on without it")


def _tell_hosts(job: Job, *, for_good: bool) -> bool:
    """Whether any host has taken note."""
    with suppress(PenstockError):
        task = {"do": "attach", "for_good": for_good}
        answer = ask_hosts(job, hosts_of(job).rows, task, patience_s=PATIENCE_S)
        return any(part.head.get("kept") for part in answer.parts if part.head)
    return False
