"""All hosts of a job at one moment. Pure.

Moments are seconds of the source's own clock, so lateness and leases go on by themselves: what is here changes only when a host does.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from penstock.process.questions.host_sets import fold

#: Host states, the worst first. ``late`` is no state but a host that is here and was not heard when it should have been.
STATES = ("expired", "gone", "left", "unkillable", "unheard", "excluded", "joining", "late", "here", "spare")
#: Names of hosts in a line, in characters.
_NAMES_WIDTH = 40


class HostCell(msgspec.Struct, frozen=True, kw_only=True):
    """One host."""

    name: str
    state: str
    #: Its host rank; nothing of a host that waits for one.
    rank: int | None = None
    rack: str = ""
    slots: int = 0
    first_rank: int | None = None
    address: str = ""
    voter: bool = False
    #: What people should mend on it.
    trouble: str = ""
    #: Since when it is in its state.
    since_s: float | None = None
    #: When its last heartbeat was due, of a host that is late.
    due_s: float | None = None
    #: Whether the leader itself hears its heartbeats. Of others it is not known that they are late until they are unheard.
    is_timed: bool = True
    #: When its lease ends at the latest, of a host that does not renew it. Others have a whole one.
    lease_end_s: float | None = None

    @property
    def shown_state(self) -> str:
        """Its state; ``late`` where it is here and was not heard in time."""
        return "late" if self.state == "here" and self.due_s is not None else self.state

    @property
    def ranks(self) -> str:
        """``8-15``."""
        if self.first_rank is None or not self.slots or self.state == "spare":
            return ""
        last = self.first_rank + self.slots - 1
        return str(last) if self.slots == 1 else f"{self.first_rank}-{last}"

    @property
    def has_lease(self) -> bool:
        """Whether it may run ranks."""
        return self.rank is not None and self.state in ("here", "unheard", "unkillable", "joining")


@dataclass(frozen=True, kw_only=True)
class HostSnapshot:
    """All hosts, and who decides for them."""

    at_s: float
    hosts: Sequence[HostCell]
    #: Grows with whatever changes; the same number means the same hosts.
    stamp: int = 0
    #: Another number means other hosts, or others in other places.
    list_stamp: int = 0
    term: int = 0
    leader: str = ""
    voters: Sequence[str] = ()
    #: Why nothing is decided; empty when all is well.
    frozen: str = ""
    #: Why this is not how it is now, but how it was.
    problem: str = ""
    #: What the job does, in a few words.
    phase: str = ""
    is_over: bool = False
    lease_s: float = 0.0
    heartbeat_s: float = 1.0
    #: Of a job that is played: when something happens next.
    next_s: float | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def late_beats(self, host: HostCell) -> float:
        """How many heartbeats are missing."""
        return 0.0 if host.due_s is None else max(0.0, (self.at_s - host.due_s) / self.heartbeat_s)

    def lease_left_s(self, host: HostCell) -> float | None:
        """How long its ranks may run on unheard, at most; nothing where it has no lease."""
        if not host.has_lease:
            return None
        return self.lease_s if host.lease_end_s is None else max(0.0, host.lease_end_s - self.at_s)

    def for_s(self, host: HostCell) -> float | None:
        """How long it has been in its state."""
        return None if host.since_s is None else max(0.0, self.at_s - host.since_s)

    def part_of(self, host: HostCell) -> str:
        """``leads``, ``votes`` or nothing."""
        if host.name == self.leader:
            return "leads"
        return "votes" if host.voter else ""

    def line(self) -> str:
        """``2,030 hosts here · unheard: gpu07 · 16 spare``."""
        here = self.counts["here"] + self.counts["late"]
        parts = [f"{here:,} {'host' if here == 1 else 'hosts'} here"]
        for state in STATES:
            count = self.counts[state]
            if not count or state in ("here", "late"):
                continue
            names = "" if state == "spare" else self._names_of(state)
            parts.append(f"{state}: {names}" if names else f"{count:,} {state}")
        if self.frozen:
            parts.append(f"frozen: {self.frozen}")
        return " · ".join(parts)

    def _names_of(self, state: str) -> str:
        """Names of hosts in a state, where they are few enough for a line."""
        if self.counts[state] > _NAMES_WIDTH:
            return ""
        names = fold(host.name for host in self.hosts if host.state == state)
        return names if len(names) <= _NAMES_WIDTH else ""


def rack_words(racks: Sequence[str], *, named_max: int = 4) -> str:
    """``rack a``, or several; racks that are called so already are not called so twice."""
    named = ", ".join(racks[:named_max]) + ("…" if len(racks) > named_max else "")
    if all(rack.lower().startswith("rack") for rack in racks):
        return named
    return f"{'rack' if len(racks) == 1 else 'racks'} {named}"


def count_states(hosts: Iterable[HostCell]) -> Counter[str]:
    """How many hosts are in each state."""
    return Counter(host.shown_state for host in hosts)


def worst(states: Iterable[str]) -> str:
    """What is shown of several hosts that share a place."""
    return min(states, key=badness, default="here")


def badness(state: str) -> int:
    """Its place among states, the worst first; a state that is not known here is between."""
    return STATES.index(state) if state in STATES else STATES.index("joining")
