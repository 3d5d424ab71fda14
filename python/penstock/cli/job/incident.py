"""``penstock incident``: a failure, for people."""

import json as json_module
import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from penstock.cli.job.choice import job_called
from penstock.cli.output import Json, command_app, print_json, print_table, print_text, say
from penstock.cli.questions.incident_of_hosts import show_job_incident
from penstock.errors import IncidentUnknown
from penstock.process.job.catalogue import Job
from penstock.process.job.incidents import Incident, last_words, numbers, ranges, read
from penstock.process.questions.answers import PATIENCE_S, check_patience
from penstock.process.questions.job_incidents import job_incidents
from penstock.process.stacks import Collected, shown
from penstock.report.quantities import size

app = command_app(
    "incident",
    "Show a failure: what came first, how every rank ended, last words, what was decided and why.",
    examples=(
        "  penstock incident show train-3f2a\n"
        "  penstock incident list train-3f2a\n"
        "  penstock incident show train-3f2a 0 --json | jq .first_cause"
    ),
)
#: Ranks that are listed one by one before equal ends are put together.
RANKS_LISTED = 16


Here = Annotated[
    bool, Parameter(negative=(), help="Of a job of many hosts, what this host alone has written down.")
]


@app.default
@app.command
def show(
    job: str,
    number: int | None = None,
    *,
    here: Here = False,
    patience: Annotated[float, Parameter(help="Seconds that many hosts may take for details.")] = PATIENCE_S,
    json: Json = False,
) -> int:
    """Show one failure of a job; the newest, unless a number is given. Of a job of many hosts it is told over all of them.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    number
        Which one, as `penstock incident list` has them.
    """
    handle = job_called(job)
    check_patience(patience)
    over_hosts = [] if here else job_incidents(handle)
    if over_hosts:
        return show_job_incident(handle, _chosen(handle, over_hosts, number), patience_s=patience, json=json)
    incident = read(handle, number)
    if json:
        print_json({"job": handle.id, "file": str(incident.path), **incident.document})
        return 0
    for line in incident_lines(handle.id, incident):
        print_text(line)
    return 0


@app.command(name="list")
def list_(job: str, *, here: Here = False, json: Json = False) -> int:
    """List the failures of a job, oldest first.

    Parameters
    ----------
    job
        Name of the job, or how it begins.
    """
    handle = job_called(job)
    rows = [] if here else job_incidents(handle)
    rows = rows or [read(handle, number) for number in numbers(handle)]
    if json:
        for row in rows:
            document = row.document
            keys = ("role", "incarnation", "at", "first_cause", "cause", "verdict", "reason")
            print_json({"job": handle.id, "number": row.number, **{key: document.get(key) for key in keys}})
        return 0
    if not rows:
        say(f"{handle.id} had no failure")
        return 0
    shown = [
        (
            row.number,
            _clock(row.document.get("at")),
            row.document.get("role", ""),
            _or(row.document.get("incarnation")),
            row.document.get("first_cause") or "",
            _verdict(row.document.get("verdict")),
        )
        for row in rows
    ]
    print_table(["number", "when", "role", "life", "first cause", "decided"], shown, right=["number", "life"])
    return 0


def _chosen(job: Job, incidents: list[Incident], number: int | None) -> Incident:
    known = {incident.number: incident for incident in incidents}
    wanted = max(known) if number is None else number
    if wanted not in known:
        raise IncidentUnknown(job=job.id, wanted=number, known=list(map(str, known)))
    return known[wanted]


def incident_lines(job: str, incident: Incident) -> Iterator[str]:
    """The lines that a person reads."""
    about = incident.document
    yield f"incident {incident.number} of {job}: {about.get('first_cause') or 'cause unknown'}"
    step = "" if about.get("step") is None else f", at step {about['step']}"
    yield f"  {about.get('role', '')} life {_or(about.get('incarnation'))}, {_clock(about.get('at'))}{step}"
    if about.get("cause"):
        yield f"  counted as {about['cause']}"
    yield f"  decided: {_verdict(about.get('verdict'))}, because {about.get('reason')}"
    yield f"  command: {shlex.join(map(str, about.get('command', [])))}"
    yield ""
    yield "in order:"
    yield from _order(about.get("ranks", []))
    yield from _kernel(about.get("kernel") or [])
    yield from _words(about)
    yield from _stacks(about.get("stacks"))


def _order(ranks: list[dict[str, Any]]) -> Iterator[str]:
    """Who failed or ended when, causes first; ranks that ended alike after they were asked stand in one line."""
    begin = min((at for rank in ranks if (at := _moment(rank)) is not None), default=0)
    listed = ranks if len(ranks) <= RANKS_LISTED else [rank for rank in ranks if not _is_bystander(rank)]
    for rank in listed[: 2 * RANKS_LISTED]:
        moment = _moment(rank)
        after = "       ?" if moment is None else f"{(moment - begin) / 1000:+8.3f}"
        used = f" ({size(rank['rss_max_bytes'])} at most)" if rank.get("rss_max_bytes") else ""
        yield f"  {after} s  rank {rank['rank']} {_end(rank)}{_progress(rank.get('pulse'))}{used}"
    rest: dict[str, list[int]] = {}
    for rank in [rank for rank in ranks if rank not in listed] + listed[2 * RANKS_LISTED :]:
        rest.setdefault(_end(rank), []).append(rank["rank"])
    for ended, those in rest.items():
        yield f"         later  ranks {ranges(those)} {ended}"


def _moment(rank: dict[str, Any]) -> int | None:
    """When a rank failed; for one that did not, when it ended."""
    at = rank.get("failed_ms")
    return rank.get("exit_ms") if at is None else at


def _is_bystander(rank: dict[str, Any]) -> bool:
    """Whether it ended because it was asked; older files say no more than that."""
    return bool(rank.get("part", "bystander" if rank.get("asked_to_end") else "") == "bystander")


def _end(rank: dict[str, Any]) -> str:
    """What a rank said, how it ended, and why it is not the cause."""
    ended = rank.get("ended") or rank.get("held") or "is still there"
    asked = ", after it was asked to" if rank.get("asked_to_end") else ""
    error = f": {rank['error']}" if rank.get("error") else ""
    lost = " (an effect: it lost a connection)" if rank.get("part") == "effect" else ""
    return f"{ended}{asked}{error}{lost}"


def _progress(pulse: Any) -> str:
    """How far a rank came, if it said so."""
    if not isinstance(pulse, dict):
        return ""
    phase = f" in phase {pulse['phase']}" if pulse.get("phase") else ""
    return f", at step {pulse['step']}{phase}" if pulse.get("steps") else phase and f",{phase}"


def _kernel(lines: list[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield "the kernel said:"
        yield from (f"  {line}" for line in lines)


def _words(about: dict[str, Any]) -> Iterator[str]:
    for ranks, lines in last_words(about):
        for stream, text in lines.items():
            if text:
                yield ""
                yield f"last lines of rank {ranges(ranks)}, {stream}:"
                yield from (f"  {line}" for line in text)


def _stacks(stacks: Any) -> Iterator[str]:
    if not stacks:
        return
    yield ""
    yield "stacks, taken before anything was killed:"
    try:
        text = shown(msgspec.convert(stacks, Collected))
    except msgspec.MsgspecError:
        # Of another version; still worth reading.
        text = json_module.dumps(stacks, indent=1, ensure_ascii=False)
    yield from (f"  {line}" for line in text.splitlines())


def _verdict(verdict: Any) -> str:
    """``start`` life 2, and so on; older files have one word."""
    if not isinstance(verdict, dict):
        return str(verdict or "nothing").lower()
    if verdict.get("do") == "warn":
        return "end nothing"
    if verdict.get("do") in ("start", "prepare"):
        return f"start life {verdict.get('incarnation')}"
    return str(verdict.get("do", verdict))


def _clock(at: Any) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S") if isinstance(at, int | float) else ""


def _or(value: Any) -> Any:
    return "" if value is None else value
