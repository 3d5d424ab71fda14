"""``penstock logs -f`` of ranks on many hosts: lines as they are written, merged by time as far as nobody has to wait for it."""

import heapq
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.cli.job.log_lines import Display
from penstock.cli.output import check_reader, say
from penstock.process.logs.chronology import Dated
from penstock.process.logs.reader import Gap, Piece, Worker
from penstock.process.questions.log_stream import Chunk, LogStream, Note

#: What comes from several logs is held for so long and put in order, unless it is too much.
ORDER_S = 0.1
HELD_BYTES_MAX = 4 << 20


@dataclass
class TimeOrder:
    """What has come and is not shown yet; what came within a moment is put in the order in which it was written."""

    show: Callable[[Dated], None]
    _held: list[tuple[int, int, Dated]] = field(default_factory=list)
    #: When something came, and the newest moment until then.
    _come: deque[tuple[float, int]] = field(default_factory=deque)
    _count: int = 0
    _bytes: int = 0
    _newest_ms: int = 0
    _due_ms: int = -1

    def add(self, dated: Dated, size: int, now_s: float) -> None:
        """Something came."""
        self._count += 1
        self._bytes += size
        heapq.heappush(self._held, (dated.at_ms, self._count, dated))
        self._newest_ms = max(self._newest_ms, dated.at_ms)
        self._come.append((now_s, self._newest_ms))

    def release(self, now_s: float, *, everything: bool = False) -> bool:
        """Show what was held for long enough; whether anything was."""
        while self._come and now_s >= self._come[0][0] + ORDER_S:
            self._due_ms = max(self._due_ms, self._come.popleft()[1])
        everything = everything or self._bytes > HELD_BYTES_MAX
        shown = False
        while self._held and (everything or self._held[0][0] <= self._due_ms):
            dated = heapq.heappop(self._held)[2]
            self.show(dated)
            shown = True
        if not self._held:
            self._bytes = 0
            self._come.clear()
        return shown


def follow_on_hosts(stream: LogStream, display: Display, *, in_order: bool) -> int:
    """Show everything until the job is over; 1 if something may be missing."""
    order = TimeOrder(display.show)
    for entry in stream:
        now_s = time.monotonic()
        match entry:
            case Chunk(part, content):
                worker = Worker(part.role, part.rank)
                read: Piece | Gap = Piece(worker, part.stream, part.offset, bytes(content))
                if part.gap:
                    byte_count = part.end - part.offset
                    read = Gap(worker, part.stream, part.offset, byte_count, removed=part.gap == "removed")
                if in_order:
                    order.add(Dated(part.at_ms, read), len(content), now_s)
                else:
                    display.show(Dated(part.at_ms, read))
            case Note(words):
                order.release(now_s, everything=True)
                sys.stdout.flush()
                say(f"note: {words}")
            case None:
                order.release(now_s)
                sys.stdout.flush()
                check_reader()
    order.release(time.monotonic(), everything=True)
    sys.stdout.flush()
    return 1 if stream.is_cut else 0
