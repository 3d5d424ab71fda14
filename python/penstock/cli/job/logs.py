"""``penstock logs``: what workers wrote."""

import re
import sys
import time
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from penstock.cli.job.choice import job_called, job_here
from penstock.cli.job.log_lines import Display, GrowingLabels, is_colourful, labels
from penstock.cli.output import Json, check_reader, command_app
from penstock.cli.questions.follow_on_hosts import follow_on_hosts
from penstock.cli.questions.logs_of_hosts import LogSearch, logs_of_hosts
from penstock.errors import JobSilent, UsageError
from penstock.process.job.catalogue import ELSEWHERE, FINAL, Job
from penstock.process.logs.chronology import in_order
from penstock.process.logs.reader import STREAMS, Gap, Reader, Worker, last_lines_place, segments, workers
from penstock.process.logs.since import moment_ms, places_since
from penstock.process.questions.answers import PATIENCE_S
from penstock.process.questions.host_choice import Hosts, hosts_of
from penstock.process.questions.log_frames import Followed
from penstock.process.questions.log_stream import LogStream
from penstock.process.questions.number_ranges import ranges as number_ranges

#: Between two looks while there is output; twice as long after each look without.
LOOK_S = 0.05
LOOK_MAX_S = 0.4
#: After this time a job that has no state yet will not get one.
START_PATIENCE_S = 60.0

app = command_app(
    "logs",
    "Print what workers wrote, lossless, with places; during the job and after it.",
    examples=(
        "  penstock logs train-3f2a -f\n"
        "  penstock logs train-3f2a --rank 0-3,7 --since 10m --grep 'loss|nan'\n"
        "  penstock logs train-3f2a --since 2026-11-15T12:00 --until 2026-11-15T12:05 --times\n"
        "  penstock logs train-3f2a --role trainer --since incarnation --json | jq -r .text\n"
        "  penstock logs train-3f2a --rank 3 --stream stdout --start 1048576\n"
        "  penstock logs train-3f2a --ranks 7311 --times\n"
        "  penstock logs train-3f2a --hosts 'gpu[01-16]' --grep 'NCCL WARN' --since 10m"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Whose output, and which."""

    rank: Annotated[
        str | None, Parameter(help="Only these ranks, as in 3 or 0-3,7; of one, the bytes as they are.")
    ] = None
    ranks: Annotated[
        str | None, Parameter(help="Only these ranks of all hosts of a job of many, as in 3 or 0-3,7.")
    ] = None
    hosts: Annotated[
        str | None, Parameter(help="Only ranks on these hosts of the job, as in gpu[01-16].")
    ] = None
    role: Annotated[str | None, Parameter(help="Only workers of this role.")] = None
    stream: Annotated[Literal["stdout", "stderr", "both"], Parameter(help="Which output.")] = "both"


@dataclass(frozen=True, kw_only=True)
class Span:
    """From where on, and to where."""

    since: Annotated[
        str | None,
        Parameter(help="10m ago, 2026-11-15T12:00, or `incarnation` for the newest life of each worker."),
    ] = None
    until: Annotated[
        str | None, Parameter(help="Up to this moment, given in the same way; not with --follow.")
    ] = None
    start: Annotated[int, Parameter(help="Byte of the streams to begin at.")] = 0
    tail: Annotated[
        int | None, Parameter(help="Only the last N lines of each log; with --grep, the last N that match.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Form:
    """How it is shown."""

    grep: Annotated[str | None, Parameter(help="Only lines that match this regular expression.")] = None
    prefix: Annotated[
        bool | None, Parameter(help="The worker before every line (default: unless --rank names one).")
    ] = None
    times: Annotated[bool, Parameter(negative=(), help="The moment before every line.")] = False
    json: Json = False
    patience: Annotated[float, Parameter(help="Seconds that many hosts may take for it.")] = PATIENCE_S


@app.default
def logs(
    job: str,
    *,
    choice: Annotated[Choice | None, Parameter(name="*")] = None,
    span: Annotated[Span | None, Parameter(name="*")] = None,
    form: Annotated[Form | None, Parameter(name="*")] = None,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative=(), help="Keep printing until the job is over.")
    ] = False,
) -> int:
    """Lines of all workers by time; with --follow, as they write.

    A moment is known to half a second, and mostly to a few milliseconds. On a terminal only colours are obeyed; in a pipe bytes stay as they are.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    choice, span, form = choice or Choice(), span or Span(), form or Form()
    if span.until is not None and follow:
        raise UsageError("--until and --follow exclude each other")
    named = (choice.hosts, choice.ranks) != (None, None)
    if named or follow or (form.grep is not None and choice.rank is None):
        handle = job_called(job)
        if _is_over_hosts(handle, choice):
            if follow:
                return _follow_hosts(handle, choice, span, form)
            return logs_of_hosts(handle, _search(choice, span, form), times=form.times, json=form.json)
    handle = job_here(job, "logs")
    chosen = _chosen(handle, choice)
    streams = STREAMS if choice.stream == "both" else (choice.stream,)
    one = choice.rank is not None and len(chosen) == 1
    prefixed = not one if form.prefix is None else form.prefix
    display = Display(
        prefixes=labels(workers(handle), colour=is_colourful()) if prefixed else None,
        pattern=_pattern(form.grep),
        json=form.json,
        times=form.times,
        last=span.tail or 0 if form.grep is not None else 0,
    )
    if span.tail == 0 and not follow:
        return 0
    until_ms = None if span.until is None else moment_ms(span.until)
    places = _places(handle, chosen, span, exact_tail=form.grep is None)
    reader = Reader(handle, chosen, streams, places=places)
    if follow:
        _follow(handle, reader, display)
    _show_new(handle, reader, display, until_ms=until_ms)
    _show_new(handle, reader, display, whole_lines=False, until_ms=until_ms)
    display.release()
    sys.stdout.flush()
    return 0


def _is_over_hosts(job: Job, choice: Choice) -> bool:
    """Whether all hosts are to be asked; those of a job that is over cannot be."""
    if choice.hosts is not None or choice.ranks is not None:
        return True
    return job.host_file() is not None and job.phase() not in (*FINAL, "lost", ELSEWHERE)


def _check_span(span: Span, form: Form) -> None:
    _pattern(form.grep)
    if span.start:
        raise UsageError("--start is a place in the logs of this host", hint="--since counts on all hosts")
    if span.since is not None and span.since != "incarnation":
        moment_ms(span.since)
    if span.tail is not None and span.tail < 0:
        raise UsageError(f"--tail must be a number of lines, got {span.tail}")


def _follow_hosts(job: Job, choice: Choice, span: Span, form: Form) -> int:
    """Ranks of all hosts as they write; numbers of ranks count over all hosts."""
    _check_span(span, form)
    if choice.rank is not None and choice.ranks is not None:
        raise UsageError("--rank and --ranks are the same with --follow", hint="give one of them")
    ranks = choice.ranks or choice.rank
    if ranks is not None:
        ranks = number_ranges(sorted(_ranks(ranks)))
    roles = [role["name"] for role in job.description()["roles"]]
    if choice.role is not None and choice.role not in roles:
        raise UsageError(f"job {job.id} has no role {choice.role!r}", hint=f"it has {', '.join(roles)}")
    one = ranks is not None and ranks.isdecimal()
    prefixed = not one if form.prefix is None else form.prefix
    display = Display(
        prefixes=GrowingLabels(roles, colour=is_colourful()) if prefixed else None,
        pattern=None,
        json=form.json,
        times=form.times,
    )
    followed = Followed(
        ranks=ranks,
        role=choice.role,
        streams=STREAMS if choice.stream == "both" else (choice.stream,),
        pattern=form.grep,
        since=span.since,
        tail=span.tail,
        raw=display.is_raw and form.grep is None,
    )

    def chosen() -> tuple[Hosts, list[int]]:
        hosts = hosts_of(job)
        return hosts, hosts.choose(names=choice.hosts, ranks=ranks)

    stream = LogStream(job, followed, chosen)
    return follow_on_hosts(stream, display, in_order=not (one and choice.stream != "both"))


def _search(choice: Choice, span: Span, form: Form) -> LogSearch:
    _check_span(span, form)
    return LogSearch(
        hosts=choice.hosts,
        ranks=choice.ranks,
        role=choice.role,
        streams=STREAMS if choice.stream == "both" else (choice.stream,),
        pattern=form.grep,
        since=span.since,
        until_ms=None if span.until is None else moment_ms(span.until),
        lines=span.tail,
        patience_s=form.patience,
    )


def _follow(job: Job, reader: Reader, display: Display) -> None:
    """Until the job is over; what it wrote last is left."""
    pause_s = LOOK_S
    while not _over(job):
        count = _show_new(job, reader, display, whole_lines=not display.is_raw)
        display.release()
        sys.stdout.flush()
        check_reader()
        pause_s = LOOK_S if count else min(2 * pause_s, LOOK_MAX_S)
        time.sleep(pause_s)


def _show_new(
    job: Job, reader: Reader, display: Display, *, whole_lines: bool = True, until_ms: int | None = None
) -> int:
    count = 0
    for dated in in_order(job, reader, whole_lines=whole_lines):
        if until_ms is not None and dated.at_ms > until_ms:
            # A clock that was set back may have put earlier moments behind later ones.
            continue
        display.show(dated)
        count += not isinstance(dated.part, Gap)
    return count


def _over(job: Job) -> bool:
    phase = job.phase()
    if phase == "starting":
        age_s = time.time() - (job.directory / "job.json").stat().st_mtime
        if age_s > START_PATIENCE_S:
            raise JobSilent(job=job.id, reason=f"it was asked for {age_s:.0f} s ago and never started")
    return phase in (*FINAL, "lost")


def _chosen(job: Job, choice: Choice) -> list[Worker]:
    everybody = workers(job)
    roles = list(dict.fromkeys(worker.role for worker in everybody))
    if choice.role is not None and choice.role not in roles:
        raise UsageError(f"job {job.id} has no role {choice.role!r}", hint=f"it has {', '.join(roles)}")
    playing = [worker for worker in everybody if choice.role in (None, worker.role)]
    if choice.rank is None:
        return playing
    wanted = _ranks(choice.rank)
    most = max(worker.rank for worker in playing)
    if beyond := [rank for rank in sorted(wanted) if not 0 <= rank <= most]:
        raise UsageError(f"job {job.id} has ranks 0 to {most}, not {beyond[0]}")
    return [worker for worker in playing if worker.rank in wanted]


def _ranks(text: str) -> set[int]:
    """Ranks as in ``0-3,7``."""
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(
                f"--rank {text}: {part!r} is not a rank", hint="a number, or several as in 0-3,7"
            )
        ranks.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return ranks


def _pattern(text: str | None) -> "re.Pattern[bytes] | None":
    try:
        return None if text is None else re.compile(text.encode())
    except re.error as problem:
        raise UsageError(f"--grep must be a regular expression, got {text!r}: {problem}") from problem


def _places(job: Job, chosen: list[Worker], span: Span, *, exact_tail: bool) -> dict[tuple[Worker, str], int]:
    if span.start < 0:
        raise UsageError(f"--start must be 0 or more, got {span.start}")
    if span.tail is not None and span.tail < 0:
        raise UsageError(f"--tail must be a number of lines, got {span.tail}")
    places = {(worker, stream): span.start for worker in chosen for stream in STREAMS}
    if span.since is not None:
        for key, place in places_since(job, chosen, span.since).items():
            places[key] = max(places[key], place)
    if span.tail is not None and exact_tail:
        there = segments(job)
        for (worker, stream), place in places.items():
            of_log = there.get(f"{worker.name}.{stream}", [])
            places[worker, stream] = max(place, last_lines_place(of_log, span.tail))
    return places
