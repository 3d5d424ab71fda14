"""The hosts of a real job, by asking its leader.

All hosts are asked for once, and again when there are others. In between the leader tells only of those that are not settled: whoever it
does not name is here and heard. When nobody answers, what was known stays, with the reason.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from threading import Lock

import msgspec

from penstock.errors import PenstockError
from penstock.process.hosts.host_table import HostRow, HostTable, host_table, unsettled_hosts
from penstock.process.job.catalogue import FINAL, Job
from penstock.process.questions.host_sets import fold
from penstock.process.questions.host_usage import usage_of_host
from penstock.report.hosts.snapshot import HostCell, HostSnapshot, count_states, rack_words
from penstock.report.hosts.source import EVENTS_MAX, EventKind, HostEvent, RanksOfHost
from penstock.report.job_story import Happening, Story

#: Looks of several screens within this time are one.
FRESH_S = 0.2
#: How long the leader is waited for.
PATIENCE_S = 1.5
#: Looks that are remembered, for screens that want to know what changed since.
LOOKS_KEPT = 600
#: Between two looks at the journal.
JOURNAL_S = 2.0
#: Hosts that an event names.
_NAMED_MAX = 4096
_OF_HOSTS = ("hosts", "trouble")
_OF_GANG = ("ordered", "failed", "verdict", "started", "over", "stop")


class AskedJob:
    """A job that runs. Safe from any thread."""

    length_s: float | None = None

    def __init__(self, job: Job, *, clock: Callable[[], float] = time.time) -> None:
        self.title = job.id
        self._job, self._clock = job, clock
        self._lock, self._reading = Lock(), Lock()
        self._table = HostTable()
        self._hosts: list[HostCell] = []
        self._newest: HostSnapshot | None = None
        #: The same as screens get it, and how many are in each state.
        self._shown: tuple[HostCell, ...] = ()
        self._counts: Counter[str] = Counter()
        #: Where hosts stand, by host rank; and those that the leader named in its last answer.
        self._places: dict[int | None, int] = {}
        self._unsettled: set[int] = set()
        self._stamp = 0
        self._list_stamp = 0
        #: Places that changed, with the stamp of the look that saw it.
        self._moved: deque[tuple[int, list[int]]] = deque(maxlen=LOOKS_KEPT)
        #: Stamps before this one are forgotten: hosts were others.
        self._known_since = 0
        self._seen: deque[HostEvent] = deque(maxlen=EVENTS_MAX)
        self._told: deque[HostEvent] = deque(maxlen=EVENTS_MAX)
        self._story: Story | None = None
        self._read_s = 0.0

    def look(self, moment_s: float | None = None) -> HostSnapshot:
        """The hosts now; a real job has no other moment."""
        with self._lock:
            if self._newest is None or not 0 <= self._clock() - self._newest.at_s < FRESH_S:
                self._newest = self._asked()
            return self._newest

    def moved(self, since: int, snapshot: HostSnapshot) -> list[int] | None:
        """Places of hosts that have changed."""
        with self._lock:
            oldest = self._moved[0][0] - 1 if len(self._moved) == LOOKS_KEPT else 0
            if since < max(oldest, self._known_since) or since > self._stamp:
                return None
            news = (places for stamp, places in self._moved if since < stamp <= snapshot.stamp)
            return sorted({place for places in news for place in places})

    def events(self, until_s: float | None = None) -> Sequence[HostEvent]:
        """What the journal says, and what was seen here that no journal has: silence, and leaders."""
        # The journal is asked for beside the looks, which must not wait for it.
        with self._reading:
            if not 0 <= self._clock() - self._read_s < JOURNAL_S:
                self._read_s = self._clock()
                self._read_journal()
        with self._lock:
            events = sorted([*self._told, *self._seen], key=lambda event: event.at_s)
        return [event for event in events if until_s is None or event.at_s <= until_s][-EVENTS_MAX:]

    def ranks(self, place: int) -> RanksOfHost:
        """What runs on a host, as that host measures it."""
        hosts = self._hosts
        host = hosts[place] if 0 <= place < len(hosts) else None
        if host is None or host.rank is None:
            return RanksOfHost(problem="it has no rank")
        try:
            return RanksOfHost(*usage_of_host(self._job, host.rank))
        except (PenstockError, OSError) as problem:
            return RanksOfHost(problem=str(problem))

    def _asked(self) -> HostSnapshot:
        now_s = self._clock()
        try:
            phase = self._job.phase()
        except (PenstockError, OSError) as trouble:
            return self._snapshot(now_s, "lost", problem=str(trouble), is_over=True)
        if phase in (*FINAL, "lost"):
            return self._snapshot(now_s, phase, problem=f"the job is over ({phase})", is_over=True)
        try:
            news = None if self._table.hosts is None else unsettled_hosts(self._job, patience_s=PATIENCE_S)
            if news is None or (news.hosts is not None and news.list != self._table.list):
                news = host_table(self._job, patience_s=PATIENCE_S)
                self._take_all(news, now_s)
            else:
                self._take_unsettled(news, now_s)
        except (PenstockError, OSError) as silence:
            return self._snapshot(now_s, phase, problem=str(silence))
        problem = "" if news.hosts is not None else news.line()
        return self._snapshot(now_s, phase, problem=problem, frozen=news.frozen or "")

    def _snapshot(
        self, now_s: float, phase: str, *, problem: str, frozen: str = "", is_over: bool = False
    ) -> HostSnapshot:
        table = self._table
        return HostSnapshot(
            at_s=now_s,
            hosts=self._shown,
            stamp=self._stamp,
            list_stamp=self._list_stamp,
            term=table.term,
            leader=table.leader or "",
            voters=tuple(table.voters),
            frozen=frozen,
            problem=problem,
            phase=phase,
            is_over=is_over,
            lease_s=table.lease_ms / 1000,
            heartbeat_s=table.heartbeat_ms / 1000,
            counts=self._counts,
        )

    def _take_all(self, table: HostTable, now_s: float) -> None:
        if table.hosts is None:
            return
        before = {host.name: host for host in self._hosts}
        self._note_leader(table, now_s)
        self._table = table
        self._hosts = [_cell(row, table, now_s, before.get(row.name)) for row in table.hosts]
        self._places = {host.rank: place for place, host in enumerate(self._hosts) if host.rank is not None}
        self._unsettled = {
            place for place, host in enumerate(self._hosts) if host.rank is not None and not _is_settled(host)
        }
        self._keep()
        self._stamp += 1
        self._list_stamp += 1
        self._known_since = self._stamp
        self._moved.clear()
        if before:
            changed = [
                host for host in self._hosts if host.name in before and before[host.name].state != host.state
            ]
            self._note_states(changed, now_s)

    def _take_unsettled(self, news: HostTable, now_s: float) -> None:
        if news.hosts is None:
            return
        known = [host.name for host in self._hosts if host.rank is None]
        if known != [row.name for row in news.hosts if row.rank is None]:
            self._take_all(host_table(self._job, patience_s=PATIENCE_S), now_s)
            return
        self._note_leader(news, now_s)
        self._table = msgspec.structs.replace(news, hosts=self._table.hosts)
        rows = {row.rank: row for row in news.hosts if row.rank is not None}
        named = {self._places[rank] for rank in rows if rank in self._places}
        places, changed = [], []
        for place in sorted(named | self._unsettled):
            host = self._hosts[place]
            row = rows.get(host.rank) if host.rank is not None else None
            now = _settled_host(host, now_s) if row is None else _cell(row, news, now_s, host)
            if now != host:
                places.append(place)
                if now.state != host.state:
                    changed.append(now)
                self._hosts[place] = now
        self._unsettled = named
        if places:
            self._stamp += 1
            self._moved.append((self._stamp, places))
            self._note_states(changed, now_s)
            self._keep()

    def _keep(self) -> None:
        """Hosts are others than before."""
        self._shown, self._counts = tuple(self._hosts), count_states(self._hosts)

    def _note_leader(self, table: HostTable, now_s: float) -> None:
        if table.leader and (table.term, table.leader) != (self._table.term, self._table.leader):
            self._seen.append(
                HostEvent(now_s, "term", f"{table.leader} leads in term {table.term:x}", table.term)
            )

    def _note_states(self, hosts: Sequence[HostCell], now_s: float) -> None:
        self._seen.extend(state_events(hosts, now_s))

    def _read_journal(self) -> None:
        try:
            if self._story is None:
                self._story = Story(self._job)
            self._told.extend(event for event in map(_event, self._story.more()) if event is not None)
        except (PenstockError, OSError):
            # It is asked again.
            pass


def _is_settled(host: HostCell) -> bool:
    return host.state in ("here", "spare") and host.due_s is None


def _settled_host(host: HostCell, now_s: float) -> HostCell:
    """A host that the leader does not name any more: it is here and heard."""
    since_s = host.since_s if host.state == "here" else now_s
    return msgspec.structs.replace(host, state="here", since_s=since_s, due_s=None, lease_end_s=None)


def state_events(hosts: Sequence[HostCell], at_s: float, term: int = 0) -> list[HostEvent]:
    """One line for each state that hosts have now."""
    states: dict[str, list[HostCell]] = {}
    for host in hosts:
        states.setdefault(host.state, []).append(host)
    events = []
    for state, those in states.items():
        names = fold(host.name for host in those[:_NAMED_MAX])
        racks = sorted({host.rack for host in those if host.rack})
        where = f" ({rack_words(racks)})" if racks else ""
        verb = "is" if len(those) == 1 else "are"
        events.append(HostEvent(at_s, "host", f"{names}{where} {verb} {state}", term))
    return events


def _cell(row: HostRow, table: HostTable, now_s: float, known: HostCell | None) -> HostCell:
    """A host as it was told. Moments that mean the same as before stay the same, so nothing seems to move."""
    is_known = known is not None and known.state == row.state
    since_s = None if row.since_s is None else now_s - row.since_s
    due_s = None if not row.late_beats else now_s - row.late_beats * table.heartbeat_ms / 1000
    end_s = None if row.lease_left_s is None or due_s is None else now_s + row.lease_left_s
    return HostCell(
        name=row.name,
        state=row.state,
        rank=row.rank,
        rack=row.rack,
        slots=row.slots,
        first_rank=row.first_rank,
        address=row.address,
        voter=row.voter,
        trouble=row.trouble or "",
        since_s=_settled(since_s, known.since_s if known is not None and is_known else None),
        due_s=_settled(due_s, known.due_s if known is not None else None),
        is_timed=row.late_beats is not None,
        lease_end_s=_settled(end_s, known.lease_end_s if known is not None else None),
    )


def _settled(moment_s: float | None, before_s: float | None) -> float | None:
    """The moment that was known, where the new one differs by no more than answers take."""
    if moment_s is None or before_s is None or abs(moment_s - before_s) > 1.0:
        return moment_s
    return before_s


def _event(happening: Happening) -> HostEvent | None:
    name = str(happening.entry.get("event"))
    if name not in _OF_HOSTS and name not in _OF_GANG:
        return None
    kind: EventKind = "host" if name in _OF_HOSTS else "fault" if name == "failed" else "gang"
    term = happening.entry.get("term", 0)
    return HostEvent(happening.at, kind, happening.what, term if isinstance(term, int) else 0)
