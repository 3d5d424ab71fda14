"""Incarnations: a life of the run begins with a fence in the log, and from then on no earlier life can commit.

Rank 0 puts the fence; the other ranks of its incarnation recognise it by the token they share, or by its number when the
launcher gave them one. Here a token was drawn for one start, so a fence that has it is ours; ``roll`` is for names that may come again.
"""

from dataclasses import dataclass, replace

from penstock.errors import Fenced, RanksMissing, UsageError
from penstock.state.log.history import History
from penstock.state.log.log import Log
from penstock.state.log.records import Fence
from penstock.state.ranks.clock import Clock, Wait
from penstock.store import Store


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of an incarnation, and how it knows the others."""

    rank: int
    ranks: int
    #: The same on all ranks of one incarnation, and never used by another. May be empty on other ranks than 0
    #: when they know the number.
    token: str
    #: Its number, where the launcher counts; otherwise the next one that is free.
    incarnation: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise UsageError(f"rank must be 0 or more and below ranks, got rank {self.rank} of {self.ranks}")
        if self.incarnation is not None and self.incarnation < 0:
            raise UsageError(f"incarnation must be 0 or more, got {self.incarnation}")
        if not self.token and (self.rank == 0 or self.incarnation is None):
            raise UsageError(
                f"rank {self.rank} has no token to know its incarnation by",
                hint="give all ranks the same token=, new for every start",
            )


def fence(log: Log, member: Member, *, deadline_s: float = 600.0, clock: Clock | None = None) -> Member:
    """Begin an incarnation: rank 0 puts its fence, others wait for it. Returns the member with its incarnation's number.

    Raises ``Fenced`` when another incarnation has this number or a higher one, ``RanksMissing`` when rank 0 did not come.
    """
    clock = clock or Clock()
    own = begin(log, member, clock) if member.rank == 0 else _await(log, member, Wait(deadline_s, clock))
    return replace(member, incarnation=own.incarnation, token=own.token)


def check_newest(history: History, incarnation: int, place: str) -> None:
    """Raise ``Fenced`` when a newer incarnation stands in the log, or may have stood in a record that is lost."""
    if history.incarnation > incarnation:
        raise Fenced(incarnation=incarnation, newer=history.incarnation, place=place)
    if history.lost_since_fence:
        raise Fenced(incarnation=incarnation, newer=None, place=place)


def next_incarnation(history: History, store: Store) -> int:
    """The lowest number that no incarnation has had, even if the record of its fence is lost: it may have left files."""
    number = history.next_incarnation()
    if not history.lost_since_fence:
        return number
    names = (entry.name.split("/") for top in ("data", "parts", "resume") for entry in store.entries(top))
    return max([number, *(int(parts[1]) + 1 for parts in names if len(parts) > 2 and parts[1].isdecimal())])


def begin(log: Log, member: Member, clock: Clock, *, anew: bool = False) -> Fence:
    """Put the fence of rank 0, unless it stands there already; ``anew``: another one in any case."""
    own: Fence | None = None

    def decide(history: History) -> Fence | None:
        nonlocal own
        own = None if anew else _find(history, member, log.store.url)
        if own is not None:
            return None
        number = next_incarnation(history, log.store) if member.incarnation is None else member.incarnation
        if number <= history.incarnation:
            raise Fenced(incarnation=number, newer=history.incarnation, place=log.store.url)
        return Fence(incarnation=number, ranks=member.ranks, token=member.token, at=clock.now())

    appended = log.append(decide)
    standing = own if appended is None else appended.record
    assert isinstance(standing, Fence)
    return standing


def _await(log: Log, member: Member, wait: Wait) -> Fence:
    while (standing := _find(log.read(), member, log.store.url)) is None:
        if not wait.again():
            raise RanksMissing(
                what="the beginning of this incarnation",
                missing=[0],
                ranks=member.ranks,
                waited_s=wait.waited_s,
            )
    return standing


def _find(history: History, member: Member, place: str) -> Fence | None:
    """The member's own fence, if it stands in the log. ``Fenced`` if another one stands in its place, or after it."""
    for _, candidate in reversed(history.fences()):
        number_fits = member.incarnation in (None, candidate.incarnation)
        token_fits = member.token in ("", candidate.token)
        if number_fits and token_fits:
            _check_ranks(candidate, member)
            check_newest(history, candidate.incarnation, place)
            return candidate
    if member.incarnation is not None and member.incarnation <= history.incarnation:
        raise Fenced(incarnation=member.incarnation, newer=history.incarnation, place=place)
    return None


def _check_ranks(standing: Fence, member: Member) -> None:
    if standing.ranks != member.ranks:
        raise UsageError(
            f"rank {member.rank} counts {member.ranks} ranks, but incarnation {standing.incarnation} has {standing.ranks}",
            hint="use a new token for every start",
        )
