"""``penstock events``: what a process or all processes of a run recorded, or what happened to a job."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_json, print_table, print_text, say
from penstock.errors import UsageError
from penstock.events import Event, Recording, read
from penstock.report.quantities import duration
from penstock.report.recording import KindSummary, summaries_of

if TYPE_CHECKING:
    from penstock.events.columns import EventTable
    from penstock.process.job.catalogue import Job

#: Recordings of a run that cannot be read and are named one by one.
FAULTS_SHOWN = 8

app = command_app(
    "events",
    "Print the events that a process or a whole run recorded, or what happened to a job.",
    examples=(
        "  penstock events train-3f2a -f\n"
        "  penstock events runs/exp1 --kind run.step\n"
        "  penstock events run.pev --summary\n"
        "  penstock events run.pev --kind data.wait --json | jq .duration_ns"
    ),
)


@app.default
def events(
    what: str,
    *,
    follow: Annotated[
        bool,
        Parameter(name=["--follow", "-f"], negative=(), help="Of a job: keep printing until it is over."),
    ] = False,
    kind: Annotated[
        str | None, Parameter(help="Only events of this kind, or of kinds that begin with it.")
    ] = None,
    summary: Annotated[bool, Parameter(negative=(), help="Count, total and percentiles per kind.")] = False,
    json: Json = False,
) -> int:
    """Of a recording, print points as they come and spans as they end; spans that never ended come last.

    Of a run, print those of all ranks and lives, merged by time. Of a job, print every start, exit, failure and decision with its
    reason, in order.

    Parameters
    ----------
    what
        A recording (.pev), also one that was torn by a kill; a run: its directory, run:DIR, or a name below runs/; a job: its name, or
        how it begins.
    """
    subject = _subject(what)
    if not isinstance(subject, Path):
        if kind is not None or summary:
            raise UsageError("--kind and --summary go with a recording or a run, not with a job")
        from penstock.cli.job.story import show

        return show(subject, follow=follow, json=json)
    if follow:
        raise UsageError(
            f"--follow goes with a job, and {what} is a {'run' if subject.is_dir() else 'recording'}"
        )
    if subject.is_dir():
        _print_run(subject, kind, summary=summary, json=json)
        return 0
    if summary:
        # Arrays, not objects: a recording may hold many millions of events.
        from penstock.events.columns import read_table

        table = read_table(subject)
        _print_summaries(summaries_of([table], kind or ""), json=json)
        _tell_losses(table)
        return 0
    recording = read(subject)
    for event in recording:
        if kind is not None and not event.kind.startswith(kind):
            continue
        if json:
            print_json(event.to_json())
        else:
            print_text(_line(event))
    _tell_losses(recording)
    return 0


def _subject(what: str) -> "Job | Path":
    """The job that is meant, the directory of the run, or the recording: a file that is there, or is called like one."""
    if Path(what).is_file() or (what.endswith(".pev") and not Path(what).is_dir()):
        return Path(what)
    from penstock.cli.job.choice import job_or_run

    return job_or_run(what)


def _print_run(run: Path, kind: str | None, *, summary: bool, json: bool) -> None:
    """Events of all ranks and lives; times are since the first of them."""
    from penstock.report.run_events import run_events

    events = run_events(run)
    if summary:
        _print_summaries(summaries_of(events.tables(), kind or ""), json=json)
    else:
        chosen = (one for one in events if kind is None or one.event.kind.startswith(kind))
        first_ns: int | None = None
        for one in chosen:
            if json:
                print_json(one.to_json())
                continue
            first_ns = one.wall_ns if first_ns is None else first_ns
            shown = replace(one.event, time_ns=one.wall_ns - first_ns)
            print_text(f"life {one.life} rank {one.rank} {_line(shown)}")
    for fault in events.faults[:FAULTS_SHOWN]:
        say(f"note: {fault}")
    if len(events.faults) > FAULTS_SHOWN:
        say(f"note: {len(events.faults) - FAULTS_SHOWN} recordings more could not be read")
    if events.torn_bytes:
        say(f"note: {events.torn_bytes} bytes are torn or damaged and were not read")
    if events.unclosed:
        say(
            f"note: {events.unclosed} recordings were not closed: their processes were killed, or still record"
        )
    if events.lost:
        say(f"note: the recorders had to drop {events.lost} events")


def _line(event: Event) -> str:
    took = "open" if event.open else "" if event.duration_ns is None else duration(event.duration_ns)
    fields = " ".join(f"{key}={value!r}" for key, value in event.fields.items())
    return f"{event.time_ns / 1e9:>12.6f} s  {took:>8}  {event.kind}  {fields}".rstrip()


def _print_summaries(summaries: Iterable[KindSummary], *, json: bool) -> None:
    names = ["kind", "count", "total_ns", "p50_ns", "p99_ns", "max_ns"]
    rows = [[getattr(kind, name) for name in names] for kind in summaries]
    if json:
        for row in rows:
            print_json(dict(zip(names, row, strict=True)))
        return
    shown = [(row[0], row[1], *("" if cell is None else duration(cell) for cell in row[2:])) for row in rows]
    heads = ["kind", "count", "total", "p50", "p99", "max"]
    print_table(heads, shown, right=heads[1:])


def _tell_losses(recording: "Recording | EventTable") -> None:
    if recording.torn_bytes:
        say(f"note: the last {recording.torn_bytes} bytes are torn or damaged and were not read")
    elif not recording.closed:
        say("note: the recording was not closed: its process was killed, or still records")
    if recording.lost:
        say(f"note: the recorder had to drop {recording.lost} events")
