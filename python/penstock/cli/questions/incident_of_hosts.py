"""``penstock incident`` of a job of many hosts: one failure over all of them, and who answered when they were asked for details."""

import shlex
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from penstock.cli.output import print_json, print_text, say
from penstock.errors import JobSilent
from penstock.process.job.catalogue import FINAL, Job
from penstock.process.job.incidents import Incident
from penstock.process.questions.answers import Answer, Part, ask_hosts, left_s
from penstock.process.questions.host_choice import hosts_of
from penstock.process.questions.job_incidents import durations, failure_of, in_order
from penstock.process.questions.number_ranges import numbers_in

#: Of what one rank said.
LINES_MAX = 20
#: Groups of ranks whose last words are shown; `--json` has all.
GROUPS_MAX = 8
#: Clocks that agree better are no news for a person.
CLOCK_MS = 2.0


def show_job_incident(job: Job, incident: Incident, *, patience_s: float, json: bool) -> int:
    """Show a failure as all hosts know it. While the job runs, hosts are asked for what they know besides."""
    runs = job.phase() not in (*FINAL, "lost")
    answer = _ask(job, incident, patience_s) if runs else None
    if json:
        account = {} if answer is None else {"account": msgspec.to_builtins(answer.account)}
        details = [] if answer is None else [msgspec.to_builtins(part) for part in _told(answer.parts)]
        about = {"job": job.id, "number": incident.number, "file": str(incident.path)}
        print_json({**about, **incident.document, "details": details, **account})
    else:
        parts = [] if answer is None else answer.parts
        for line in incident_lines(job.id, incident, parts):
            print_text(line)
        if answer is not None:
            say(answer.account.line())
        elif not runs:
            say(f"{job.id} does not run any more; this is what its hosts were told")
    return 1 if runs and (answer is None or not answer.account.is_whole) else 0


def _ask(job: Job, incident: Incident, patience_s: float) -> Answer | None:
    document, begun_s = incident.document, time.monotonic()
    task = {"do": "incident", "role": document.get("role"), "incarnation": document.get("incarnation")}
    try:
        hosts = hosts_of(job, patience_s=patience_s)
        return ask_hosts(job, hosts.rows, task, patience_s=left_s(patience_s, begun_s))
    except JobSilent as silent:
        say(f"note: this is what this host was told; the others cannot be asked for details ({silent})")
        return None


def incident_lines(job: str, incident: Incident, parts: list[Part]) -> Iterator[str]:
    """The lines that a person reads."""
    about = incident.document
    yield f"incident {incident.number} of {job}: {about.get('first_cause') or 'cause unknown'}"
    step = "" if about.get("step") is None else f", at step {about['step']}"
    yield f"  {about.get('role', '')} life {about.get('incarnation')} on {about.get('hosts')} hosts, {_clock(about)}{step}"
    yield f"  counted as {about.get('cause')}"
    yield f"  decided: {verdict_words(about.get('verdict'))}, because {about.get('reason')}"
    yield from _took_over(about)
    yield f"  command: {shlex.join(map(str, about.get('command') or []))}"
    yield ""
    yield "in order:"
    yield from _order(about)
    yield from _durations(about)
    yield from _words(about, parts)
    yield from _clocks(about)


def verdict_words(verdict: Any) -> str:
    """What was decided, in words."""
    if not isinstance(verdict, dict):
        return str(verdict or "nothing").lower()
    life = verdict.get("incarnation")
    return {"start": f"start life {life}", "prepare": f"start life {life}", "wait": "wait"}.get(
        str(verdict.get("do")), str(verdict.get("do"))
    )


def _took_over(about: dict[str, Any]) -> Iterator[str]:
    for one in about.get("took_over") or []:
        words = (
            "came back" if one.get("back") else f"took over host rank {one['host_rank']} from {one['from']}"
        )
        yield f"  {one['to']} {words}"


def _order(about: dict[str, Any]) -> Iterator[str]:
    """Who failed when, causes first. What is closer than its uncertainty is said to be."""
    lines = in_order(failure_of(about))
    begin = min((line.at_ms for line in lines), default=0)
    before = None
    for line in lines:
        alike = before is not None and not line.is_effect and line.is_about_when(before)
        when = (
            "at about the same time"
            if alike
            else f"{(line.at_ms - begin) / 1000:+10.3f} s ±{line.within_ms} ms"
        )
        yield f"  {when:>22}  {line.who} {line.what}"
        before = line
    if not lines:
        yield "  nobody who is heard has seen more of it"
    for name, what in (("more_failures", "rank"), ("more_lost_hosts", "lost host")):
        if count := about.get(name):
            yield f"  {'later':>22}  {count} more {what}{'' if count == 1 else 's'}"


def _durations(about: dict[str, Any]) -> Iterator[str]:
    parts = durations(failure_of(about))
    if parts:
        yield ""
        yield "how long it took:"
        for part in parts:
            yield f"  {part.name:<10} {part.seconds:9.3f} s  {part.about}"
        yield f"  {'together':<10} {sum(part.seconds for part in parts):9.3f} s"


def _words(about: dict[str, Any], parts: list[Part]) -> Iterator[str]:
    """Last lines: of those who failed first and of hosts that are gone, as others kept them; of all others, as their hosts answered."""
    shown: set[int] = set()
    for one in about.get("words") or []:
        shown.add(one["rank"])
        yield from _last_lines(f"rank {one['rank']} on {one['host']}", one["text"])
    for host in about.get("lost_hosts") or []:
        for one in host.get("stderr") or []:
            who = (
                f"{one['role']} {one['rank']}" if one["role"] != about.get("role") else f"rank {one['rank']}"
            )
            yield from _last_lines(f"{who} on {host['host']}, which is lost", one["text"])
    groups = [
        part
        for part in _told(parts)
        if part.head.get("kernel") or not shown.issuperset(numbers_in(part.ranks))
    ]
    for part in groups[:GROUPS_MAX]:
        if part.head.get("kernel"):
            yield from _last_lines(f"the kernel of host rank {part.hosts}", part.body)
        else:
            yield from _last_lines(f"rank {part.ranks}", part.body)
    if len(groups) > GROUPS_MAX:
        yield ""
        yield f"{len(groups) - GROUPS_MAX} more groups of ranks said something else; --json has them"


def _told(parts: list[Part]) -> list[Part]:
    """Those that say something, the smallest groups first."""
    said = [part for part in parts if part.head and part.body]
    return sorted(said, key=lambda part: (len(numbers_in(part.ranks)), part.ranks))


def _last_lines(who: str, text: str) -> Iterator[str]:
    # Of a progress bar its last state.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if lines:
        yield ""
        yield f"last lines of {who}:"
        yield from (f"  {line}" for line in lines[-LINES_MAX:])


def _clocks(about: dict[str, Any]) -> Iterator[str]:
    """Hosts whose time of day differs, because their logs say other times than those above."""
    clocks = about.get("clocks") or []
    wrong = [
        clock
        for clock in clocks
        if abs(clock["time_of_day_ahead_ms"]) > max(CLOCK_MS, 2 * clock["within_ms"])
    ]
    if wrong:
        yield ""
        yield f"clocks that differ from that of {about.get('written_by')}; times above are corrected:"
        for clock in wrong[:GROUPS_MAX]:
            yield f"  {clock['host']:<16} {clock['time_of_day_ahead_ms'] / 1000:+.3f} s"
        if len(wrong) > GROUPS_MAX:
            yield f"  and {len(wrong) - GROUPS_MAX} more"


def _clock(about: dict[str, Any]) -> str:
    at = about.get("at")
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S") if isinstance(at, int | float) else ""
