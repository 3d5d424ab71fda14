"""``penstock attach``: a job that runs elsewhere on this host comes back into the foreground.

Whoever attaches reads: the job depends on no attachment, so a terminal that closes, a connection that breaks and a second person who attaches
change nothing. Only an answer to the question that Ctrl-C asks stops the job.
"""

import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.job.choice import job_called, job_here
from penstock.cli.job.log_lines import Display, is_colourful, labels
from penstock.cli.output import Json, check_reader, command_app, say
from penstock.cli.run.attached_hosts import follow_attached_hosts
from penstock.cli.run.interrupts import Interrupts
from penstock.errors import JobSilent, UsageError
from penstock.process.job.catalogue import FINAL, Job
from penstock.process.logs.chronology import Dated, in_order
from penstock.process.logs.reader import STREAMS, Gap, Piece, Reader, last_lines_place, segments, workers

LOOK_S = 0.05
LOOK_MAX_S = 0.4
#: After this time a job that has no state yet will not get one.
START_PATIENCE_S = 60.0
END_PATIENCE_S = 15.0
#: Where nobody says how many lines a screen has.
SCREEN_LINES = 24
TAIL_MAX = 1_000_000
OVER = (*FINAL, "lost")

app = command_app(
    "attach",
    "Bring a job into the foreground: a screen of what it printed, then its output as it comes.",
    examples=(
        "  penstock attach train-3f2a\n"
        "  penstock attach train-3f2a --tail 1000\n"
        "  penstock attach train-3f2a --tail 0 --json | jq -r .text"
    ),
)


@app.default
def attach(
    job: str,
    *,
    tail: Annotated[
        int | None, Parameter(help="Lines from before to show first (default: a screen; 0: none).")
    ] = None,
    json: Json = False,
) -> int:
    """End with the job, and with its exit code. Ctrl-C asks whether to detach or to stop the job; in a pipe it detaches.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    if tail is not None and not 0 <= tail <= TAIL_MAX:
        raise UsageError(f"--tail must be a number of lines from 0 to {TAIL_MAX}, got {tail}")
    lines = shutil.get_terminal_size((80, SCREEN_LINES)).lines - 1 if tail is None else tail
    handle = job_called(job)
    interrupts = Interrupts()
    if handle.host_file() is not None and handle.phase() not in OVER:
        with interrupts.noted():
            is_over = follow_attached_hosts(handle, interrupts, lines=lines, json=json)
    else:
        is_over = _follow_here(job_here(handle.id, "attach"), interrupts, lines=lines, json=json)
    if not is_over:
        say(f"detached; {handle.id} goes on. `penstock attach {handle.id}` comes back to it")
        return 0 if sys.stdin.isatty() else 128 + signal.SIGINT
    return _ended(handle)


def _follow_here(job: Job, interrupts: Interrupts, *, lines: int, json: bool) -> bool:
    """The ranks of this host; whether the job is over, and nobody detached before."""
    display = Display(prefixes=labels(workers(job), colour=is_colourful()), pattern=None, json=json)
    reader = _reader(job, lines)
    with interrupts.noted():
        _show_screen(job, reader, display, lines)
        return _follow(job, reader, display, interrupts)


def _reader(job: Job, lines: int) -> Reader:
    """At the last lines of every log; which of them are among the last of all is seen when they are read."""
    there = segments(job)
    everybody = workers(job)
    places = {
        (worker, stream): last_lines_place(there.get(f"{worker.name}.{stream}", []), lines)
        for worker in everybody
        for stream in STREAMS
    }
    return Reader(job, everybody, STREAMS, places=places)


def _show_screen(job: Job, reader: Reader, display: Display, lines: int) -> None:
    """The last lines of all workers together, by time."""
    newest: deque[Dated] = deque(maxlen=lines)
    for dated in in_order(job, reader):
        newest.extend(_lines(dated))
    for dated in newest:
        display.show(dated)
    sys.stdout.flush()


def _lines(dated: Dated) -> Iterator[Dated]:
    """The lines of a part, each by itself."""
    part = dated.part
    if isinstance(part, Gap):
        yield dated
        return
    offset = part.offset
    for line in part.content.splitlines(keepends=True):
        yield Dated(dated.at_ms, Piece(part.worker, part.stream, offset, line))
        offset += len(line)


def _follow(job: Job, reader: Reader, display: Display, interrupts: Interrupts) -> bool:
    """Show what comes, until the job is over; not if the person detached before."""
    pause_s = LOOK_S
    while True:
        is_over = _is_over(job)
        count = _show_new(job, reader, display, whole_lines=not is_over)
        if is_over:
            return True
        if interrupts.want_to_detach(job):
            return False
        check_reader()
        pause_s = LOOK_S if count else min(2 * pause_s, LOOK_MAX_S)
        time.sleep(pause_s)


def _show_new(job: Job, reader: Reader, display: Display, *, whole_lines: bool) -> int:
    count = 0
    for dated in in_order(job, reader, whole_lines=whole_lines):
        display.show(dated)
        count += 1
    sys.stdout.flush()
    return count


def _is_over(job: Job) -> bool:
    phase = job.phase()
    if phase == "starting":
        age_s = time.time() - (job.directory / "job.json").stat().st_mtime
        if age_s > START_PATIENCE_S:
            raise JobSilent(job=job.id, reason=f"it was asked for {age_s:.0f} s ago and never started")
    return phase in OVER


def _ended(job: Job) -> int:
    """Say how it ended; its exit code."""
    # Of many hosts, the last word of one may come before the agent here has written down that all is over.
    until = time.monotonic() + END_PATIENCE_S
    while job.phase() not in OVER and time.monotonic() < until:
        time.sleep(LOOK_S)
    state = job.state()
    say(f"{job.id}: {job.phase()}: {job.reason()}")
    code = None if state is None else state.exit_code
    return 1 if code is None else code
