"""One command beside each of some ranks of a host, at once: what they wrote and how they ended."""

import hashlib
import os
import selectors
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.process.exec import Beside, find_workers, nothing_left, start
from penstock.process.job.catalogue import Job
from penstock.process.questions.number_ranges import numbers_in, ranges
from penstock.process.questions.task_parts import first_ranks, part

#: Output of one command that is kept; all of it is counted and compared.
OUTPUT_BYTES_MAX = 64 << 10
PIECE_BYTES = 1 << 16
#: What a shell says of a command that took too long.
TOO_LATE = 124


@dataclass
class _Running:
    """A command, and what it has written."""

    rank: int
    pid: int
    kept: bytearray = field(default_factory=bytearray)
    cut: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    code: int | None = None

    def take(self, piece: bytes) -> None:
        """Output, of which so much is kept."""
        self.digest.update(piece)
        room = OUTPUT_BYTES_MAX - len(self.kept)
        self.kept += piece[:room]
        self.cut += max(0, len(piece) - room)


def run_beside(job: Job, task: dict[str, Any]) -> list[dict[str, Any]]:
    """Parts with ``code`` and output of each command; those of equal ones are put together later."""
    until = time.monotonic() + float(task["limit_s"])
    role = _role(job, task.get("role"))
    first = first_ranks(job.state()).get(role["name"], 0)
    here = {rank - first for rank in numbers_in(task["ranks"])} & set(range(int(role["ranks"])))
    if not here:
        return []
    workers = find_workers(job, ranges(here), task.get("role"))
    with nothing_left():
        running = _run([(first + int(beside.worker["rank"]), beside) for beside in workers], task, until)
    return [_part(one, task) for one in running]


def _role(job: Job, name: str | None) -> dict[str, Any]:
    """The role of that name; else the first, whose ranks a choice of hosts counts."""
    roles: list[dict[str, Any]] = job.description()["roles"]
    return next((role for role in roles if role["name"] == name), roles[0])


def _run(workers: list[tuple[int, Beside]], task: dict[str, Any], until: float) -> list[_Running]:
    watch = selectors.DefaultSelector()
    running: list[_Running] = []
    for rank, beside in workers:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        running.append(_Running(rank, start(beside, task["words"], outputs=(writing, writing))))
        os.close(writing)
        watch.register(reading, selectors.EVENT_READ, running[-1])
    while watch.get_map() and (left := until - time.monotonic()) > 0:
        for key, _ in watch.select(left):
            piece = os.read(key.fd, PIECE_BYTES)
            key.data.take(piece)
            if not piece:
                watch.unregister(key.fd)
                os.close(key.fd)
    for one in running:
        one.code = _code(one.pid, until)
    return running


def _code(pid: int, until: float) -> int | None:
    """How a command ended; nothing when it did not in time, and then it is killed."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if time.monotonic() >= until:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.002)


def _part(one: _Running, task: dict[str, Any]) -> dict[str, Any]:
    late = one.code is None
    head = {"code": TOO_LATE, "late": True} if late else {"code": one.code}
    about = {"limit_ms": round(float(task["limit_s"]) * 1000)} if late else None
    same = [head, one.digest.hexdigest()]
    text = one.kept.decode(errors="replace")
    return part(same, ranks=[one.rank], head=head, body=text, about=about, cut=one.cut)
