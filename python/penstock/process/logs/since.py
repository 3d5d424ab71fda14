"""Where logs were at a moment: ``--since`` as places in streams.

The agent writes ``ROLE-RANK.times`` beside the logs: records of four numbers (milliseconds since 1970, the places in stdout and stderr at that moment,
the incarnation): one when a life begins, and while there is output one in half a second at least, more as long as they stay small beside the
log itself. So a place is known to half a second, and mostly to a few milliseconds.
"""

import re
import struct
import time
from datetime import datetime, timedelta
from pathlib import Path

from penstock.errors import UsageError
from penstock.process.job.catalogue import Job
from penstock.process.logs.reader import STREAMS, Worker, segments

RECORD = struct.Struct("<4Q")
#: What a record does not cover was written within this time after it: half a second, and a little for the clock.
APART_MS = 520
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}

Places = dict[tuple[Worker, str], int]


def moment_ms(text: str, *, now_s: float | None = None) -> int:
    """A moment in milliseconds since 1970: so long ago (``90s``, ``10m``, ``2h``, ``1d``), or a date and time, local if it has no zone."""
    now_s = time.time() if now_s is None else now_s
    if span := _SPAN.fullmatch(text):
        ago = timedelta(seconds=float(span[1]) * _SECONDS[span[2]])
        return max(0, round((now_s - ago.total_seconds()) * 1000))
    try:
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError) as problem:
        raise UsageError(
            f"{text!r} is not a moment",
            hint="10m, 2h, 2026-11-15T12:00, or `incarnation` for the newest life",
        ) from problem


def index_path(job: Job, worker: Worker) -> Path:
    """The index beside the logs of a worker."""
    return job.directory / "logs" / f"{worker.name}.times"


def places_since(job: Job, workers: list[Worker], since: str) -> Places:
    """Where the logs of these workers were then."""
    if since == "incarnation":
        return _newest_lives(job, workers)
    at_ms = moment_ms(since)
    there = segments(job)
    places: Places = {}
    for worker in workers:
        record = _record(index_path(job, worker), at_ms)
        for index, stream in enumerate(STREAMS):
            of_log = there.get(f"{worker.name}.{stream}", [])
            end = of_log[-1].end if of_log else 0
            places[worker, stream] = end if record is None else record[index]
    return places


def _newest_lives(job: Job, workers: list[Worker]) -> Places:
    state = job.state()
    known = {(gang.role, row["rank"]): row for gang, row in state.workers} if state is not None else {}
    return {
        (worker, stream): known[worker.role, worker.rank][f"{stream}_from"]
        for worker in workers
        if (worker.role, worker.rank) in known
        for stream in STREAMS
    }


def _record(path: Path, at_ms: int) -> tuple[int, int] | None:
    """The places of both streams at a moment; nothing when all was written before it."""
    try:
        with path.open("rb") as file:
            count = path.stat().st_size // RECORD.size

            def record(index: int) -> tuple[int, int, int]:
                file.seek(index * RECORD.size)
                wall_ms, out, err, _ = RECORD.unpack(file.read(RECORD.size))
                return wall_ms, out, err

            low, high = 0, count
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if record(middle)[0] <= at_ms else (low, middle)
            # `low` is the first record after the moment; the one before it may still cover what came then.
            if low > 0 and at_ms < record(low - 1)[0] + APART_MS:
                low -= 1
            return record(low)[1:] if low < count else None
    except FileNotFoundError:
        return (0, 0)
