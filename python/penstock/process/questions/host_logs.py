"""Lines of the logs of one host for a question: the newest that match, with moments as the leader's clock has them.

The coordinator of a host has measured how its clock differs from the leader's; ``clock_ms`` is what to add to moments of this host. So lines
of several hosts stand in the order in which they were written, as far as messages between the hosts can tell.
"""

import os
import re
import signal
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any

import msgspec

from penstock.process.job.catalogue import Job
from penstock.process.logs.chronology import Dated, in_order
from penstock.process.logs.reader import Gap, Reader, Worker, workers
from penstock.process.logs.since import places_since
from penstock.process.questions.answers import Part
from penstock.process.questions.number_ranges import numbers_in
from penstock.process.questions.task_parts import first_ranks

#: Of one line; the rest of a longer one is cut.
LINE_BYTES_MAX = 16 << 10
#: Of all lines of a host that are sent.
HOST_BYTES_MAX = 512 << 10


class LogLine(msgspec.Struct, frozen=True, order=True):
    """One line of one rank; ordered by time."""

    #: Milliseconds since 1970 of the leader's clock.
    at_ms: int
    role: str
    #: Over all hosts.
    rank: int
    stream: str
    offset: int
    text: str


class HostLines(msgspec.Struct, frozen=True):
    """What one host found."""

    lines: list[LogLine]
    #: Lines that match; more than are sent where only the newest are.
    match_count: int = 0
    #: Why it did not look at everything.
    problem: str = ""


class _TimeUpError(Exception):
    """The search takes too long."""


def log_parts(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    """The newest lines of the chosen ranks that are here, as one part."""
    first = first_ranks(job.state())
    wanted = None if task.get("ranks") is None else set(numbers_in(task["ranks"]))
    chosen = [
        worker
        for worker in workers(job)
        if task.get("role") in (None, worker.role)
        and (wanted is None or first.get(worker.role, 0) + worker.rank in wanted)
    ]
    newest = _search(job, chosen, task, first)
    head = {"found": newest.match_count, "sent": len(newest.lines), "problem": newest.problem}
    # Lines of two hosts are never the same, so no other part has this digest.
    return [
        {"digest": os.urandom(12).hex(), "head": head, "body": msgspec.json.encode(newest.lines).decode()}
    ]


def lines_of_all(parts: list[Part]) -> list[LogLine]:
    """Lines of all hosts, by time."""
    lines = []
    for part in parts:
        lines += msgspec.json.decode(part.body, type=list[LogLine]) if not part.cut else []
    return sorted(lines)


def _search(job: Job, chosen: list[Worker], task: dict[str, Any], first: dict[str, int]) -> HostLines:
    pattern = None if task.get("pattern") is None else re.compile(task["pattern"].encode())
    kept: deque[LogLine] = deque(maxlen=int(task["lines"]))
    count, problem = 0, ""
    # A regular expression may take for ever; the interpreter looks for signals even while it matches.
    signal.signal(signal.SIGALRM, _time_up)
    signal.setitimer(signal.ITIMER_REAL, max(0.05, float(task["limit_s"]) * 0.9))
    try:
        places = places_since(job, chosen, task["since"]) if task.get("since") else None
        reader = Reader(job, chosen, task["streams"], places=places)
        for dated in in_order(job, reader, whole_lines=False):
            for line in _lines(dated, pattern, int(task.get("clock_ms", 0)), first):
                if task.get("until_ms") is None or line.at_ms <= task["until_ms"]:
                    kept.append(line)
                    count += 1
    except _TimeUpError:
        problem = "the search took too long and was ended"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return HostLines(_newest(kept), count, problem)


def _time_up(_number: int, _frame: FrameType | None) -> None:
    raise _TimeUpError


def _newest(kept: deque[LogLine]) -> list[LogLine]:
    """The newest lines that fit, in order."""
    chosen: list[LogLine] = []
    room = HOST_BYTES_MAX
    for line in reversed(kept):
        room -= 2 * len(line.text) + 120
        if room < 0:
            break
        chosen.append(line)
    return chosen[::-1]


def _lines(
    dated: Dated, pattern: "re.Pattern[bytes] | None", clock_ms: int, first: dict[str, int]
) -> Iterator[LogLine]:
    piece = dated.part
    if isinstance(piece, Gap):
        return
    offset = piece.offset
    for line in piece.content.split(b"\n"):
        if (line or offset < piece.offset + len(piece.content)) and (pattern is None or pattern.search(line)):
            rank = first.get(piece.worker.role, 0) + piece.worker.rank
            text = line[:LINE_BYTES_MAX].decode(errors="replace")
            yield LogLine(dated.at_ms + clock_ms, piece.worker.role, rank, piece.stream, offset, text)
        offset += len(line) + 1
