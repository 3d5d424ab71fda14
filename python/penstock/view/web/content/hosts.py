"""Hosts as their page gets them: a board of columns once, and after that what has moved."""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any, cast

from penstock.errors import UsageError
from penstock.process.job.catalogue import ELSEWHERE, FINAL, Job, jobs
from penstock.report.hosts.asked_job import AskedJob
from penstock.report.hosts.snapshot import HostCell, HostSnapshot
from penstock.report.hosts.source import HostSource
from penstock.view.web.content.recordings import as_text
from penstock.view.web.content.runs import sendable
from penstock.view.wire.host_answers import (
    HostBoard,
    HostColumns,
    HostDetail,
    HostEvents,
    HostHead,
    HostJob,
    HostJobList,
    HostMoves,
    MovedHosts,
    NumberRuns,
    RankRow,
    TextRuns,
)

#: Name of the job that is played, if one is.
SIMULATION = "simulation"
#: Jobs that are listed, and of which the last looks are kept.
JOBS_MAX, KEPT_MAX = 200, 8
#: Where more hosts have moved, a board of runs is shorter.
MOVED_MAX = 30_000
#: Events that a page shows.
EVENTS_SENT = 200


@dataclass(frozen=True, kw_only=True)
class PlayedJob:
    """An imagined job that a server plays."""

    source: HostSource
    #: Seconds that pass in one, at first.
    speed: float


@dataclass(frozen=True)
class _Watched:
    """A source, and what tells its stamps from those of another."""

    source: HostSource
    speed: float = 1.0
    epoch: str = field(default_factory=lambda: secrets.token_hex(4))


class HostBoards:
    """The sources that pages look at. Safe from any thread."""

    def __init__(
        self, home: Path | None, played: PlayedJob | None, find: Callable[[Path], list[Job]] = jobs
    ) -> None:
        self._home, self._find = home, find
        self._played = None if played is None else _Watched(played.source, played.speed)
        self._kept: OrderedDict[str, _Watched] = OrderedDict()
        self._lock = Lock()

    def listing(self) -> HostJobList:
        """What can be looked at."""
        running = [job for job in self._running() if job.host_file() is not None]
        listed: list[HostJob] = []
        if self._played is not None:
            source = self._played.source
            count = len(source.look(0.0).hosts)
            listed.append(
                {
                    "name": SIMULATION,
                    "title": source.title,
                    "phase": "imagined",
                    "hosts": count,
                    "length_s": source.length_s,
                }
            )
        for job in reversed(running[-JOBS_MAX:]):
            hosts = (job.host_file() or {}).get("nnodes")
            listed.append(
                {
                    "name": as_text(job.id),
                    "title": as_text(job.id),
                    "phase": job.phase(),
                    "hosts": hosts if isinstance(hosts, int) else None,
                    "length_s": None,
                }
            )
        return {"jobs": listed, "left_out": max(0, len(running) - JOBS_MAX)}

    def board(self, name: str, moment_s: float) -> HostBoard:
        """All hosts."""
        watched = self._at(name)
        snapshot = watched.source.look(moment_s)
        return {
            "job": name,
            "stamp": _stamp(watched, snapshot),
            "head": _head(watched, snapshot),
            "hosts": _columns(snapshot.hosts),
            "events": _events(watched.source, snapshot),
        }

    def moves(self, name: str, stamp: str, mark: str, moment_s: float) -> HostMoves:
        """What has changed since."""
        watched = self._at(name)
        snapshot = watched.source.look(moment_s)
        epoch, _, numbers = stamp.partition(".")
        list_stamp, _, since = numbers.partition(".")
        places = None
        if (
            epoch == watched.epoch
            and list_stamp == str(snapshot.list_stamp)
            and since.isdecimal()
            and len(since) < 20
        ):
            places = watched.source.moved(int(since), snapshot)
        if places is not None and len(places) > MOVED_MAX:
            places = None
        events = _events(watched.source, snapshot)
        return {
            "stamp": _stamp(watched, snapshot),
            "head": _head(watched, snapshot),
            "moved": None if places is None else _moved(snapshot.hosts, places),
            "events": None if events["mark"] == mark else events,
        }

    def detail(self, name: str, place: int, moment_s: float) -> HostDetail:
        """One host, and what runs on it."""
        source = self._at(name).source
        snapshot = source.look(moment_s)
        if place >= len(snapshot.hosts):
            raise UsageError(f"the job has {len(snapshot.hosts)} hosts, and none at place {place}")
        host, ranks = snapshot.hosts[place], source.ranks(place)
        rows: list[RankRow] = [
            {
                "worker": row.worker,
                "state": row.held or row.state,
                "step": row.step,
                "phase": row.phase,
                "cpu_percent": row.cpu_percent,
                "rss_bytes": row.rss_bytes,
            }
            for row in ranks.rows
        ]
        detail: HostDetail = {
            "place": place,
            "name": host.name,
            "state": host.shown_state,
            "rank": host.rank,
            "rack": host.rack,
            "address": host.address,
            "ranks": host.ranks,
            "part": snapshot.part_of(host),
            "trouble": host.trouble,
            "rows": rows,
            "problem": ranks.problem,
        }
        return cast(HostDetail, sendable(detail))

    def _running(self) -> list[Job]:
        jobs = [] if self._home is None else self._find(self._home)
        return [job for job in jobs if job.phase() not in (*FINAL, "lost", ELSEWHERE)]

    def _at(self, name: str) -> _Watched:
        if name == SIMULATION and self._played is not None:
            return self._played
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None:
                self._kept.move_to_end(name)
                return kept
        job = next((job for job in self._running() if job.id == name and job.host_file() is not None), None)
        if job is None:
            raise UsageError(
                f"no job of many hosts is called {name[:100]!r} here", hint="`penstock jobs` lists all jobs"
            )
        with self._lock:
            watched = self._kept.setdefault(name, _Watched(AskedJob(job)))
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return watched


def text_runs(values: Sequence[str]) -> TextRuns:
    """Equal neighbours as one."""
    runs = [(value, sum(1 for _ in run)) for value, run in groupby(values)]
    return {"values": [as_text(value) for value, _ in runs], "counts": [count for _, count in runs]}


def number_runs(values: Sequence[float | None]) -> NumberRuns:
    """The same of numbers."""
    runs = [(value, sum(1 for _ in run)) for value, run in groupby(values)]
    return {"values": [value for value, _ in runs], "counts": [count for _, count in runs]}


def _columns(hosts: Sequence[HostCell]) -> HostColumns:
    return {
        "count": len(hosts),
        "names": "\n".join(as_text(host.name.replace("\n", " ")) for host in hosts),
        "racks": text_runs([host.rack for host in hosts]),
        "states": text_runs([host.state for host in hosts]),
        "rank_shift": number_runs(
            [None if host.rank is None else host.rank - place for place, host in enumerate(hosts)]
        ),
        "since_s": number_runs([_rounded(host.since_s) for host in hosts]),
        "due_s": number_runs([_rounded(host.due_s) for host in hosts]),
        "lease_end_s": number_runs([_rounded(host.lease_end_s) for host in hosts]),
    }


def _moved(hosts: Sequence[HostCell], places: Sequence[int]) -> MovedHosts:
    moved = [hosts[place] for place in places]
    return {
        "places": list(places),
        "states": [as_text(host.state) for host in moved],
        "ranks": [host.rank for host in moved],
        "since_s": [_rounded(host.since_s) for host in moved],
        "due_s": [_rounded(host.due_s) for host in moved],
        "lease_end_s": [_rounded(host.lease_end_s) for host in moved],
    }


def _rounded(moment_s: float | None) -> float | None:
    return None if moment_s is None else round(moment_s, 1)


def _stamp(watched: _Watched, snapshot: HostSnapshot) -> str:
    return f"{watched.epoch}.{snapshot.list_stamp}.{snapshot.stamp}"


def _head(watched: _Watched, snapshot: HostSnapshot) -> HostHead:
    head: dict[str, Any] = {
        "title": watched.source.title,
        "at_s": snapshot.at_s,
        "phase": snapshot.phase,
        "problem": snapshot.problem,
        "is_over": snapshot.is_over,
        "term": snapshot.term,
        "leader": snapshot.leader,
        "voters": list(snapshot.voters),
        "frozen": snapshot.frozen,
        "lease_s": snapshot.lease_s,
        "heartbeat_s": snapshot.heartbeat_s,
        "length_s": watched.source.length_s,
        "speed": watched.speed,
        "next_s": snapshot.next_s,
    }
    return cast(HostHead, sendable(head))


def _events(source: HostSource, snapshot: HostSnapshot) -> HostEvents:
    until_s = None if source.length_s is None else snapshot.at_s
    events = list(source.events(until_s))[-EVENTS_SENT:]
    mark = f"{len(events)}:{events[0].at_s}:{events[-1].at_s}" if events else "none"
    return {
        "mark": mark,
        "lines": [
            {"at_s": event.at_s, "kind": event.kind, "what": as_text(event.what), "term": event.term}
            for event in events
        ],
    }
