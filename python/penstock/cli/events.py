"""``penstock events``: what a process recorded, or what happened to a job."""

from collections.abc import Iterable
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

app = command_app(
    "events",
    "Print the events that a process recorded, or what happened to a job.",
    examples=(
        "  penstock events train-3f2a -f\n"
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

    Of a job, print every start, exit, failure and decision with its reason, in order.

    Parameters
    ----------
    what
        A recording (.pev), also one that was torn by a kill; else the name of a job, or how it begins.
    """
    job = _job(what)
    if job is not None:
        if kind is not None or summary:
            raise UsageError("--kind and --summary go with a recording, not with a job")
        from penstock.cli.job.story import show

        return show(job, follow=follow, json=json)
    if follow:
        raise UsageError(f"--follow goes with a job, and {what} is a recording")
    if summary:
        # Arrays, not objects: a recording may hold many millions of events.
        from penstock.events.columns import read_table

        table = read_table(Path(what))
        _print_summaries(summaries_of([table], kind or ""), json=json)
        _tell_losses(table)
        return 0
    recording = read(Path(what))
    for event in recording:
        if kind is not None and not event.kind.startswith(kind):
            continue
        if json:
            print_json(event.to_json())
        else:
            print_text(_line(event))
    _tell_losses(recording)
    return 0


def _job(what: str) -> "Job | None":
    """The job that is meant; nothing when it is a recording. A file that is there, or is called like one, is a recording."""
    if what.endswith(".pev") or "/" in what or Path(what).is_file():
        return None
    from penstock.cli.job.choice import job_called

    return job_called(what)


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
