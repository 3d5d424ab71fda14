"""Who is excluded, and until when: a pure function of what is written down.

Two failures within seven days exclude a host; one that is an outlier counts when it was one in three lives. What is told twice counts once.
When one of the two is older than that the host is used again: the exclusion decays. A person's decision holds until another one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.process.exclusion.identity import HostIdentity, is_same_machine
from penstock.process.exclusion.records import EXCLUDED, FAILURES, INCLUDED, SEEN, Record

WINDOW_S = 7 * 86_400.0
FAILURES_MIN = 2
OUTLIER_LIVES = 3
#: Two lines of one kind about one host that are nearer than this are about one event: two who saw it wrote it down.
ONCE_S = 3600.0


@dataclass(frozen=True)
class Exclusion:
    """Why a host is left out."""

    #: What it was called when it failed, or when a person excluded it.
    host: str
    why: str
    #: When it is used again by itself; nothing where a person has to say so.
    until: float | None


@dataclass
class HostPast:
    """All that is written down about one machine."""

    identity: HostIdentity
    #: What it was called last.
    name: str
    records: list[Record] = field(default_factory=list)
    #: What it showed, each event once, since a person last said that it is to be used.
    failures: list[Record] = field(default_factory=list)
    exclusion: Exclusion | None = None


class Pasts:
    """The pasts of all machines."""

    def __init__(self, records: Iterable[Record], *, now: float) -> None:
        self.all: list[HostPast] = []
        #: The last one of each name.
        self._by_name: dict[str, HostPast] = {}
        for record in sorted(records, key=lambda record: record.at):
            self._take(record)
        for past in self.all:
            _judge(past, now)

    def of(self, identity: HostIdentity, *, names: Sequence[str] = ()) -> HostPast | None:
        """The past of a machine: by what it is; by name only as far as nobody knew what that was."""
        same = [past for past in self.all if is_same_machine(past.identity, identity)]
        names = [name for name in (identity.name, *names) if name]
        same += [past for past in self.all if not past.identity.is_known and past.name in names]
        excluded = [past for past in same if past.exclusion is not None]
        return next(iter(excluded), same[-1] if same else None)

    def named(self, name: str) -> HostPast | None:
        """The machine that had a name last: a first guess."""
        return self._by_name.get(name)

    def excluded(self) -> list[HostPast]:
        """Machines that are left out now."""
        return [past for past in self.all if past.exclusion is not None]

    def _take(self, record: Record) -> None:
        past = self._place_of(record)
        if past is None:
            past = HostPast(record.identity, record.host)
            self.all.append(past)
        past.identity = _joined(past.identity, record.identity)
        past.name = record.host or past.name
        past.records.append(record)
        self._by_name[past.name] = past

    def _place_of(self, record: Record) -> HostPast | None:
        named = self._by_name.get(record.host)
        if not record.identity.is_known:
            # Whoever wrote it knew the name alone: it is about the machine that has it.
            return named
        same = next((past for past in self.all if is_same_machine(past.identity, record.identity)), None)
        if same is None and named is not None and not named.identity.is_known:
            return named
        return same


def _joined(one: HostIdentity, two: HostIdentity) -> HostIdentity:
    """What is known of a machine after another look; the newer look wins, but no GPU that it ever had is forgotten."""
    return HostIdentity(
        name=two.name or one.name,
        machine=two.machine or one.machine,
        board=two.board or one.board,
        cards=two.cards or one.cards,
        gpus=tuple(dict.fromkeys((*one.gpus, *two.gpus))),
    )


def _judge(past: HostPast, now: float) -> None:
    decided: Record | None = None
    shown: list[Record] = []
    for record in past.records:
        if record.kind in (EXCLUDED, INCLUDED):
            decided = record
            if record.kind == INCLUDED:
                shown = []
        elif record.kind in FAILURES:
            shown.append(record)
    past.failures = events_of(shown)
    if decided is not None and decided.kind == EXCLUDED and (not decided.until or decided.until > now):
        past.exclusion = Exclusion(decided.host, decided.why or "excluded by hand", decided.until or None)
        return
    recent = [record for record in past.failures if record.at > now - WINDOW_S]
    if len(recent) >= FAILURES_MIN:
        last = recent[-FAILURES_MIN:]
        words = "; ".join(record.why or FAILURES[record.kind] for record in last)
        past.exclusion = Exclusion(last[-1].host, words, last[0].at + WINDOW_S)


def events_of(records: Sequence[Record]) -> list[Record]:
    """Each event once, in order; of outliers the one of every third life."""
    events: list[Record] = []
    keys: set[str] = set()
    lives: dict[tuple[str, int], Record] = {}
    for record in records:
        if record.kind == "outlier":
            lives.setdefault((record.job, record.life), record)
            if len(lives) == OUTLIER_LIVES:
                events.append(record)
                lives = {}
            continue
        is_known = bool(record.key) and record.key in keys
        is_near = any(
            other.kind == record.kind and not (other.key and record.key) and record.at - other.at < ONCE_S
            for other in events
        )
        keys.add(record.key)
        if not is_known and not is_near:
            events.append(record)
    return events


def lost_at_most(hosts: int) -> int:
    """How many of its hosts a job may lose to exclusion: a tenth, and one in any case."""
    return max(1, hosts // 10)


__all__ = ["SEEN", "Exclusion", "HostPast", "Pasts", "events_of", "lost_at_most"]
