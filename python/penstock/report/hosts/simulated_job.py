"""The hosts of an imagined job, from the trace of one life: the same screens, at any moment of it.

A trace is a list of changes in order of time. The hosts of a moment are those of the last one with the changes between, forwards; backwards
it is played again from the beginning.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from threading import Lock

import msgspec

from penstock._rust import simulation_trace
from penstock.process.simulation import Outcome, SimulationPlan
from penstock.report.hosts.asked_job import state_events
from penstock.report.hosts.snapshot import HostCell, HostSnapshot, rack_words
from penstock.report.hosts.source import EVENTS_MAX, HostEvent, RanksOfHost

#: What a heartbeat is to a lease, as real hosts have it (``crates/penstock-process/src/lease/grant.rs``).
_BEATS_PER_LEASE, _BEAT_MIN_S, _BEAT_MAX_S = 30, 0.1, 1.0


class Change(msgspec.Struct, frozen=True):
    """A host is different from then on."""

    at_ms: int
    host: int
    state: str
    rank: int | None
    silent_ms: int | None


class Stage(msgspec.Struct, frozen=True):
    """The gang does something else from then on."""

    at_ms: int
    stage: str
    life: int | None


class Hit(msgspec.Struct, frozen=True):
    """A fault."""

    at_ms: int
    cause: int
    host: int | None


class Trace(msgspec.Struct, frozen=True):
    """One life, as ``crates/penstock-process/src/simulate/trace.rs`` writes it."""

    racks: list[int]
    ranked: int
    changes: list[Change]
    stages: list[Stage]
    hits: list[Hit]
    cut_ms: int | None
    outcome: Outcome


def trace_of(plan: SimulationPlan) -> Trace:
    """The life of the plan's first seed."""
    return msgspec.json.decode(simulation_trace(plan.to_json([plan.first_seed])), type=Trace)


class SimulatedJob:
    """A job on hosts that nobody has. Safe from any thread."""

    def __init__(self, plan: SimulationPlan, trace: Trace | None = None) -> None:
        self._plan = plan
        self._trace = trace_of(plan) if trace is None else trace
        self.title = f"{plan.hosts:,} imagined hosts, faults {plan.profile.name}, seed {plan.first_seed}"
        self.length_s: float = plan.for_s
        self._beat_s = min(max(plan.lease_s / _BEATS_PER_LEASE, _BEAT_MIN_S), _BEAT_MAX_S)
        self._lock = Lock()
        self._times = [change.at_ms for change in self._trace.changes]
        self._marks = self._all_marks()
        self._first = self._beginning()
        self._begin_again()
        self._events = self._all_events()

    def look(self, moment_s: float | None = None) -> HostSnapshot:
        """The hosts at a moment; without one at the beginning."""
        at_ms = round(min(max(moment_s or 0.0, 0.0), self.length_s) * 1000)
        with self._lock:
            if at_ms < self._at_ms:
                self._begin_again()
            self._play_until(at_ms)
            hosts, counts = tuple(self._hosts), Counter(self._counts)
        ended = self._trace.outcome.ended
        is_over = ended is not None and at_ms >= ended.at_ms
        return HostSnapshot(
            at_s=at_ms / 1000,
            hosts=hosts,
            stamp=at_ms,
            list_stamp=1,
            phase=f"the job gave up: {ended.reason}" if ended is not None and is_over else self._phase(at_ms),
            problem=self._cut(at_ms),
            is_over=is_over or at_ms >= round(self.length_s * 1000),
            lease_s=self._plan.lease_s,
            heartbeat_s=self._beat_s,
            next_s=self._next_s(at_ms),
            counts=counts,
        )

    def moved(self, since: int, snapshot: HostSnapshot) -> list[int] | None:
        """Places of hosts that change between two moments, in whichever order these are."""
        first, last = sorted((since, snapshot.stamp))
        changes = self._trace.changes[bisect_right(self._times, first) : bisect_right(self._times, last)]
        return sorted({change.host for change in changes})

    def events(self, until_s: float | None = None) -> Sequence[HostEvent]:
        """Faults, what became of hosts, and lives of the gang."""
        end = len(self._events)
        if until_s is not None:
            end = bisect_right(self._events, until_s, key=lambda event: event.at_s)
        return self._events[max(0, end - EVENTS_MAX) : end]

    def ranks(self, place: int) -> RanksOfHost:
        """Nothing runs on an imagined host."""
        return RanksOfHost(problem="an imagined host runs nothing")

    def _beginning(self) -> list[HostCell]:
        racks, plan = self._trace.racks, self._plan
        width, rack_width = len(str(max(len(racks) - 1, 0))), len(str(max(racks, default=0)))
        return [
            self._seated(
                HostCell(
                    name=f"host{number:0{width}}",
                    state="here" if number < self._trace.ranked else "spare",
                    rack=f"rack{rack:0{rack_width}}",
                    slots=plan.gpus_per_host,
                    since_s=0.0,
                ),
                number if number < self._trace.ranked else None,
            )
            for number, rack in enumerate(racks)
        ]

    def _begin_again(self) -> None:
        self._hosts = list(self._first)
        self._counts = Counter(host.shown_state for host in self._hosts)
        self._place, self._at_ms = 0, 0

    def _play_until(self, at_ms: int) -> None:
        changes = self._trace.changes
        while self._place < len(changes) and changes[self._place].at_ms <= at_ms:
            change = changes[self._place]
            before = self._hosts[change.host]
            now = self._changed(before, change)
            self._counts[before.shown_state] -= 1
            self._counts[now.shown_state] += 1
            self._hosts[change.host] = now
            self._place += 1
        self._at_ms = at_ms

    def _changed(self, host: HostCell, change: Change) -> HostCell:
        at_s = change.at_ms / 1000
        due_s = None if change.silent_ms is None else change.silent_ms / 1000 + self._beat_s
        end_s = None if due_s is None or change.rank is None else due_s - self._beat_s + self._plan.lease_s
        since_s = at_s if change.state != host.state else host.since_s
        now = msgspec.structs.replace(
            host, state=change.state, since_s=since_s, due_s=due_s, lease_end_s=end_s
        )
        return self._seated(now, change.rank)

    def _seated(self, host: HostCell, rank: int | None) -> HostCell:
        first = None if rank is None else rank * self._plan.gpus_per_host
        return msgspec.structs.replace(host, rank=rank, first_rank=first)

    def _phase(self, at_ms: int) -> str:
        stages = self._trace.stages
        place = bisect_right(stages, at_ms, key=lambda stage: stage.at_ms) - 1
        if place < 0:
            return "begins"
        return _stage_words(stages[place])

    def _cut(self, at_ms: int) -> str:
        cut_ms = self._trace.cut_ms
        return "" if cut_ms is None or at_ms < cut_ms else "more changes are not shown: there are too many"

    def _all_marks(self) -> list[int]:
        """Moments at which something can be seen to change."""
        of_hosts = {change.at_ms for change in self._trace.changes}
        of_faults = {hit.at_ms for hit in self._trace.hits}
        of_gang = {stage.at_ms for stage in self._trace.stages}
        return sorted(of_hosts | of_faults | of_gang)

    def _next_s(self, at_ms: int) -> float | None:
        place = bisect_right(self._marks, at_ms)
        return self._marks[place] / 1000 if place < len(self._marks) else None

    def _all_events(self) -> list[HostEvent]:
        trace, causes = self._trace, self._plan.profile.causes
        events = [
            HostEvent(
                hit.at_ms / 1000,
                "fault",
                f"{causes[hit.cause].name} takes {self._taken(hit)}",
            )
            for hit in trace.hits
        ]
        events += [
            HostEvent(stage.at_ms / 1000, "gang", _stage_words(stage))
            for stage in trace.stages
            if stage.stage in ("starting", "training", "down")
        ]
        self._begin_again()
        place = 0
        while place < len(trace.changes):
            at_ms = trace.changes[place].at_ms
            end = bisect_right(self._times, at_ms)
            before = {change.host: self._hosts[change.host].state for change in trace.changes[place:end]}
            self._play_until(at_ms)
            moved = [self._hosts[host] for host, state in before.items() if self._hosts[host].state != state]
            events += state_events(moved, at_ms / 1000)
            place = end
        self._begin_again()
        return sorted(events, key=lambda event: event.at_s)

    def _taken(self, hit: Hit) -> str:
        loses = self._plan.profile.causes[hit.cause].loses
        if hit.host is None:
            return "the job" if loses == "job" else "a host that is lost already"
        host = self._first[hit.host]
        return (
            rack_words([host.rack])
            if loses == "rack"
            else f"a rank of {host.name}"
            if loses == "rank"
            else host.name
        )


def _stage_words(stage: Stage) -> str:
    life = "" if stage.life is None else f"life {stage.life}: "
    words = {"down": "nothing runs", "stalled": "ranks stand still", "ending": "ranks are ended"}
    return life + words.get(stage.stage, stage.stage)
