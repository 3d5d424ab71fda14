"""Where screens get hosts from: one protocol, a job that is asked and a job that is played.

Screens look again and again. What has changed between two looks is told by ``moved``, so that little travels when little happens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from penstock.process.watch.usage import Row
from penstock.report.hosts.snapshot import HostSnapshot

#: What an event is about: who decides, hosts, the ranks, or what broke.
EventKind = Literal["term", "host", "gang", "fault"]
#: Events that are kept.
EVENTS_MAX = 2000


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Something that happened, in a line."""

    at_s: float
    kind: EventKind
    what: str
    #: The term of the leader that wrote it down; 0 where nobody did.
    term: int = 0


@dataclass(frozen=True)
class RanksOfHost:
    """What runs on a host."""

    rows: Sequence[Row] = ()
    #: Why there are none, or no newer ones.
    problem: str = ""


class HostSource(Protocol):
    """Hosts of a job."""

    @property
    def title(self) -> str:
        """As people call it."""
        ...

    @property
    def length_s(self) -> float | None:
        """How long it can be played; nothing of a job that is real."""
        ...

    def look(self, moment_s: float | None = None) -> HostSnapshot:
        """The hosts now, or at a moment of a job that is played. Never raises: what is not known any more is said in ``problem``."""
        ...

    def moved(self, since: int, snapshot: HostSnapshot) -> list[int] | None:
        """Places of hosts that differ from the snapshot with that stamp; nothing where that is not known any more."""
        ...

    def events(self, until_s: float | None = None) -> Sequence[HostEvent]:
        """What happened so far, or until a moment; the newest last."""
        ...

    def ranks(self, place: int) -> RanksOfHost:
        """What runs on one of the hosts of the newest look."""
        ...
