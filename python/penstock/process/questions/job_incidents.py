"""Failures of a job of many hosts, each as it is known over all of them: read, and put in order. Pure but for reading.

Whoever leads makes the document and sends it to every host (``crates/penstock-process/src/host/leading/job_incident.rs``). Its moments are the
coordinator's, as each host has measured them; ``within_ms`` says how wrong one may be. So two failures may stand in an order that nobody knows.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.events.redaction import Redaction
from penstock.process.job.catalogue import Job
from penstock.process.job.incidents import Incident

FOLDER = "incidents/of-all-hosts"
#: A document has texts of at most eight times 16 KiB; what is longer is none.
FILE_BYTES_MAX = 4 << 20


class Failed(msgspec.Struct, frozen=True):
    """A rank that ended as it should not."""

    rank: int
    at_ms: int
    host: str | None = None
    host_rank: int = 0
    ended: str = ""
    within_ms: int = 0
    of_connection: bool = False


class LostHost(msgspec.Struct, frozen=True):
    """A host that the life lost."""

    host: str
    host_rank: int
    what: str
    heard_ms: int
    unheard_ms: int
    at_ms: int
    within_ms: int = 0
    stderr: list[dict[str, Any]] = []


class Moments(msgspec.Struct, frozen=True):
    """When what happened, in the coordinator's time; nothing where it has not happened, or nobody saw it."""

    failed_ms: int | None = None
    noticed_ms: int | None = None
    ended_ms: int | None = None
    ordered_ms: int | None = None
    prepared_ms: int | None = None
    started_ms: int | None = None
    first_step_ms: int | None = None


class JobFailure(msgspec.Struct, frozen=True):
    """What of a document is put in order."""

    failures: list[Failed] = []
    lost_hosts: list[LostHost] = []
    times: Moments = Moments()


class Happened(NamedTuple):
    """One line of the order: a rank failed, or a host was heard for the last time."""

    at_ms: int
    within_ms: int
    #: It lost a connection, so somebody failed before.
    is_effect: bool
    who: str
    what: str

    def is_about_when(self, other: "Happened") -> bool:
        """Whether nobody can tell which of the two was first."""
        return abs(self.at_ms - other.at_ms) <= self.within_ms + other.within_ms


class Duration(NamedTuple):
    """One part of the way from a failure to the next step."""

    name: str
    seconds: float
    about: str


def job_incidents(job: Job) -> list[Incident]:
    """All that this host was told, in order of time; numbered from 0."""
    folder = job.directory / FOLDER
    try:
        paths = sorted(folder.glob("*.json"))
    except OSError:
        return []
    redaction = Redaction()
    documents: list[tuple[float, str, Any]] = []
    for path in paths:
        try:
            text = path.read_bytes()[:FILE_BYTES_MAX]
            document = json.loads(text)
            documents.append((float(document["at"]), str(path), document))
        except (OSError, ValueError, KeyError, TypeError):
            # Of another version, or half of it was on a disk that is gone: the others still tell their part.
            continue
    documents.sort(key=lambda entry: entry[:2])
    return [
        Incident(number, Path(path), redaction.document(document))  # type: ignore[arg-type]
        for number, (_, path, document) in enumerate(documents)
    ]


def failure_of(document: dict[str, Any]) -> JobFailure:
    """The part that is put in order; empty where it is in a form that is not known here."""
    try:
        return msgspec.convert(document, JobFailure, strict=False)
    except msgspec.ValidationError:
        return JobFailure()


def in_order(failure: JobFailure) -> list[Happened]:
    """Ranks and hosts, causes before effects, then by time and rank: as summaries order failures."""
    ranks = [(one.of_connection, one.at_ms, one.rank, _of_rank(one)) for one in failure.failures]
    hosts = [(False, one.heard_ms, -1, _of_host(one)) for one in failure.lost_hosts]
    return [happened for *_, happened in sorted([*ranks, *hosts], key=lambda entry: entry[:3])]


def _of_rank(one: Failed) -> Happened:
    who = f"rank {one.rank}" + (f" on {one.host}" if one.host else "")
    lost = " (an effect: it lost a connection)" if one.of_connection else ""
    return Happened(one.at_ms, one.within_ms, one.of_connection, who, f"{one.ended}{lost}")


def _of_host(one: LostHost) -> Happened:
    who = f"host {one.host} (host rank {one.host_rank})"
    return Happened(one.heard_ms, one.within_ms, False, who, f"was heard for the last time; it {one.what}")


def durations(failure: JobFailure) -> list[Duration]:
    """How long each part took that is over, from the first failure to the first step of the next life."""
    times = failure.times
    first = min(in_order(failure), key=lambda happened: happened.at_ms, default=None)
    lost = min(failure.lost_hosts, key=lambda host: host.heard_ms, default=None)
    is_host = lost is not None and first is not None and first.at_ms == lost.heard_ms
    marks: list[tuple[str, int | None, str]] = [
        ("", first.at_ms if first else times.failed_ms, ""),
    ]
    if is_host and lost is not None:
        marks += [
            ("detection", lost.unheard_ms, "until it was unheard"),
            ("lease", lost.at_ms, "until none of its ranks could run any more"),
        ]
    else:
        marks += [("detection", times.noticed_ms, "until the leader knew")]
    marks += [
        ("end", times.ended_ms, "until nothing of the life was left"),
        ("decision", times.ordered_ms, "until another life was ordered"),
        ("start", times.started_ms, "until all its ranks ran"),
        ("first step", times.first_step_ms, "until a rank had made a step"),
    ]
    return list(_between(marks))


def _between(marks: Sequence[tuple[str, int | None, str]]) -> Iterator[Duration]:
    """From each mark that is there to the next. What was over before the one before it took no time of its own."""
    at_ms = marks[0][1]
    for name, mark_ms, about in marks[1:]:
        if mark_ms is None or at_ms is None:
            continue
        yield Duration(name, max(mark_ms - at_ms, 0) / 1000, about)
        at_ms = max(at_ms, mark_ms)
