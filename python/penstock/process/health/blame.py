"""Who is to blame for pairs that could not talk as they should: a host, or the way between two hosts. Pure.

One good measurement clears both of its hosts. A host without any is blamed when it failed with two partners that are cleared; so the partner of a
bad host is never blamed for it. A bad pair of two cleared hosts is a bad link, unless most pairs of one of the two are bad: then it is that host.
What is left is undecided, and said so.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.process.health.pairs import PARTNERS_MIN


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of one meeting of two hosts."""

    one: int
    two: int
    good: bool

    @property
    def pair(self) -> frozenset[int]:
        """Both hosts."""
        return frozenset((self.one, self.two))


@dataclass(frozen=True, slots=True)
class Blame:
    """What explains the bad pairs."""

    hosts: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    #: Hosts of bad pairs that nothing cleared, and that too few cleared ones have met.
    undecided: tuple[int, ...] = ()


def latest(meetings: Iterable[Measured]) -> dict[frozenset[int], bool]:
    """Whether each pair was good, the last time that it met."""
    return {meeting.pair: meeting.good for meeting in meetings}


def cleared(meetings: Iterable[Measured]) -> set[int]:
    """Hosts of a good pair."""
    return {host for pair, good in latest(meetings).items() if good for host in pair}


def suspects(meetings: Iterable[Measured]) -> list[int]:
    """Hosts of bad pairs that nothing cleared."""
    known = list(meetings)
    well = cleared(known)
    return sorted({host for pair, good in latest(known).items() if not good for host in pair} - well)


def open_questions(meetings: Iterable[Measured]) -> list[int]:
    """Suspects that have not yet failed with enough hosts that are cleared."""
    known = list(meetings)
    well, pairs = cleared(known), latest(known)
    return [host for host in suspects(known) if _failed_with(host, pairs, well) < PARTNERS_MIN]


def blame(meetings: Iterable[Measured]) -> Blame:
    """Hosts and links that explain what was measured."""
    known = list(meetings)
    well, pairs = cleared(known), latest(known)
    doubtful = suspects(known)
    hosts = tuple(host for host in doubtful if _failed_with(host, pairs, well) >= PARTNERS_MIN)
    bad = sorted(tuple(sorted(pair)) for pair, good in pairs.items() if not good)
    links = [(one, two) for one, two in bad if one in well and two in well]
    partly = _mostly_bad(links, pairs)
    links = [link for link in links if not set(link) & partly]
    hosts = tuple(sorted({*hosts, *partly}))
    return Blame(hosts, tuple(links), tuple(host for host in doubtful if host not in hosts))


def _mostly_bad(links: list[tuple[int, int]], pairs: dict[frozenset[int], bool]) -> set[int]:
    """Hosts of several bad links that have fewer good pairs than bad ones."""
    hosts = set()
    for host in {host for link in links for host in link}:
        bad = sum(host in link for link in links)
        good = sum(good for pair, good in pairs.items() if host in pair)
        if bad >= PARTNERS_MIN and bad > good:
            hosts.add(host)
    return hosts


def _failed_with(host: int, pairs: dict[frozenset[int], bool], well: set[int]) -> int:
    return sum(1 for pair, good in pairs.items() if host in pair and not good and (pair - {host}) <= well)
