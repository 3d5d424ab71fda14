"""What the records of a log mean: which checkpoints exist, which of them are good, and who may write.

A ``History`` never changes; reading on gives a new one. It is a pure function of the records, so whoever has seen the same
records decides the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from penstock.errors import CheckpointDamaged
from penstock.state.records import Commit, Fence, Pin, Quarantine, Record, Retire, Unpin


@dataclass(frozen=True, slots=True)
class Committed:
    """A checkpoint that exists: a commit that no retire follows."""

    #: Number of its commit in the log.
    number: int
    commit: Commit
    #: Why it was quarantined; empty while it is good.
    damage: str = ""
    #: Who refers to its files.
    pins: frozenset[str] = frozenset()

    @property
    def step(self) -> int:
        """The step it was saved at."""
        return self.commit.step

    @property
    def good(self) -> bool:
        """Whether nobody has found damage in it."""
        return not self.damage


@dataclass(frozen=True, slots=True)
class History:
    """See the module's description. ``History()`` is that of an empty log."""

    #: The fence of the newest incarnation.
    fence: Fence | None = None
    #: Every checkpoint that exists, by number, in the order of the log.
    living: dict[int, Committed] = field(default_factory=dict)
    #: All records. The list is shared with later histories, which only add to it; ``length`` says how many are of this one.
    _records: list[Record] = field(default_factory=list, repr=False)
    length: int = 0

    def after(self, more: list[Record]) -> "History":
        """The history with further records. Only the newest history of a log is continued."""
        assert self.length == len(self._records), "this history was continued already"
        known, living, fence = self._records, dict(self.living), self.fence
        for record in more:
            reason = _broken_rule(record, fence, living, known)
            if reason:
                broken = record_name(len(known))
                del known[self.length :]
                raise CheckpointDamaged(file=broken, reason=reason)
            if isinstance(record, Fence):
                fence = record
            else:
                _apply(record, len(known), living)
            known.append(record)
        return History(fence, living, known, len(known))

    def supposing(self, record: Record) -> "History":
        """The history as if a record followed, without sharing anything with the real one."""
        return replace(self, _records=self._records[: self.length]).after([record])

    @property
    def incarnation(self) -> int:
        """The newest incarnation; -1 before the first."""
        return -1 if self.fence is None else self.fence.incarnation

    def next_incarnation(self) -> int:
        """The lowest number that a new incarnation can have."""
        return self.incarnation + 1

    def records(self, since: int = 0) -> Iterator[tuple[int, Record]]:
        """Records with their numbers, from a number on."""
        for number in range(since, self.length):
            yield number, self._records[number]

    def checkpoints(self) -> list[Committed]:
        """Every checkpoint that exists, oldest first."""
        return list(self.living.values())

    def good(self) -> list[Committed]:
        """Those in which no damage was found, oldest first."""
        return [each for each in self.living.values() if each.good]

    def quarantined(self) -> list[Committed]:
        """Those in which damage was found, oldest first; ``damage`` says what."""
        return [each for each in self.living.values() if not each.good]

    def newest_good(self) -> Committed | None:
        """The last in the log, which need not be the highest step."""
        return next((each for each in reversed(self.living.values()) if each.good), None)

    def at_step(self, step: int) -> Committed | None:
        """The last good one of a step."""
        return next(
            (each for each in reversed(self.living.values()) if each.good and each.step == step), None
        )

    def commits(self, since: int = 0) -> list[tuple[int, Commit]]:
        """Every commit ever made, retired ones too, from a number on."""
        return [(number, record) for number, record in self.records(since) if isinstance(record, Commit)]

    def commit(self, number: int) -> Commit:
        """The commit of a number, whether it is retired or not."""
        record = self._records[number]
        assert isinstance(record, Commit), f"record {number} is no commit"
        return record

    def retired(self) -> dict[int, Commit]:
        """Commits that exist no longer, by number."""
        return {number: commit for number, commit in self.commits() if number not in self.living}

    def fences(self, since: int = 0) -> list[tuple[int, Fence]]:
        """Every incarnation, with the number of its record."""
        return [(number, record) for number, record in self.records(since) if isinstance(record, Fence)]

    def committed_as(self, commit: Commit) -> int | None:
        """The number under which this very save stands in the log, if it does."""
        for number in range(self.length - 1, -1, -1):
            record = self._records[number]
            if isinstance(record, Fence) and record.incarnation <= commit.incarnation:
                return None
            if isinstance(record, Commit) and _save(record) == _save(commit):
                return number
        return None


def record_name(number: int) -> str:
    """Where a record is kept."""
    return f"log/{number:08d}.json"


def _save(commit: Commit) -> tuple[int, int, int]:
    return commit.incarnation, commit.step, commit.attempt


def _broken_rule(
    record: Record, fence: Fence | None, living: dict[int, Committed], known: list[Record]
) -> str:
    """Which rule of the log a record breaks, or nothing."""
    newest = -1 if fence is None else fence.incarnation
    if isinstance(record, Fence):
        return f"incarnation {record.incarnation} follows {newest}" if record.incarnation <= newest else ""
    if isinstance(record, Commit):
        return (
            f"incarnation {record.incarnation} commits under {newest}" if record.incarnation != newest else ""
        )
    named = record.commits if isinstance(record, Retire) else (record.commit,)
    if len(set(named)) != len(named):
        return f"a commit is named twice in {named}"
    for number in named:
        if not (0 <= number < len(known) and isinstance(known[number], Commit)):
            return f"there is no commit {number}"
        if number not in living:
            return f"commit {number} was retired already"
        if isinstance(record, Retire) and living[number].pins:
            return f"commit {number} is pinned and was retired"
    return ""


def _apply(
    record: Commit | Quarantine | Retire | Pin | Unpin, number: int, living: dict[int, Committed]
) -> None:
    match record:
        case Commit():
            living[number] = Committed(number, record)
        case Quarantine(commit, reason):
            found = living[commit]
            living[commit] = replace(found, damage=found.damage or reason or "damaged")
        case Retire(commits):
            for retired in commits:
                del living[retired]
        case Pin(commit, by):
            living[commit] = replace(living[commit], pins=living[commit].pins | {by})
        case Unpin(commit, by):
            living[commit] = replace(living[commit], pins=living[commit].pins - {by})
