"""Hosts that are alike as one row, with their names folded: a table of few lines for any number of hosts. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.process.questions.host_sets import fold
from penstock.process.questions.number_ranges import ranges
from penstock.report.hosts.snapshot import HostCell, HostSnapshot, badness

#: Hosts beyond these are shown in groups.
SINGLE_MAX = 32


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts in the same state with the same part."""

    hosts: Sequence[HostCell]
    state: str
    part: str

    @property
    def names(self) -> str:
        """``gpu[001-512]``."""
        return fold(host.name for host in self.hosts)

    @property
    def racks(self) -> str:
        """Of all of them, folded."""
        return fold({host.rack for host in self.hosts if host.rack})

    @property
    def ranks(self) -> str:
        """Of all of them, as ``0-15,24``."""
        numbers = (
            number
            for host in self.hosts
            if host.ranks and host.first_rank is not None
            for number in range(host.first_rank, host.first_rank + host.slots)
        )
        return ranges(numbers)


def groups_of(snapshot: HostSnapshot, *, single_max: int = SINGLE_MAX) -> list[HostGroup]:
    """Each host alone where they are few, in the order of the job; else groups, the worst first."""
    if len(snapshot.hosts) <= single_max:
        return [HostGroup([host], host.shown_state, snapshot.part_of(host)) for host in snapshot.hosts]
    groups: dict[tuple[str, str], list[HostCell]] = {}
    for host in snapshot.hosts:
        groups.setdefault((host.shown_state, snapshot.part_of(host)), []).append(host)
    grouped = [HostGroup(hosts, state, part) for (state, part), hosts in groups.items()]
    return sorted(grouped, key=lambda group: (badness(group.state), group.part))


def span_of(values: Iterable[float | None]) -> tuple[float, float] | None:
    """The smallest and the largest of those that are known."""
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None
