"""What the records of a log mean: which checkpoints exist, which of them are good, and who may write.

A ``History`` never changes; reading on gives a new one. It is a pure function of the records, so whoever has seen the same
records decides the same.

A record that cannot be read in any copy is ``Lost``. It costs readers itself alone: what later records say of it is passed over, and
a commit after it may be of an incarnation whose fence it was. For writers it counts as the fence of an unknown, higher incarnation, until
a fence follows it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from penstock.errors import CheckpointDamaged
from penstock.state.log.records import Commit, Fence, Lost, Pin, Quarantine, Record, Retire, Unpin


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
    """What all records up to a number of the log amount to. ``History()`` is that of an empty log."""

    #: The fence of the newest incarnation.
    fence: Fence | None = None
    #: Every checkpoint that exists, by number, in the order of the log.
    living: dict[int, Committed] = field(default_factory=dict)
    #: All records. The list is shared with later histories, which only add to it; ``length`` says how many are of this one.
    _records: list[Record | Lost] = field(default_factory=list, repr=False)
    length: int = 0
    #: Numbers of the records that cannot be read and that nobody has repaired.
    lost: tuple[int, ...] = ()
    #: Whether records were lost and rebuilt: then what later ones say may rest on what is known no longer.
    mended: bool = False
    #: How many records were lost since the newest fence: any of them may have been a higher one.
    lost_since_fence: int = 0

    def after(self, more: Sequence[Record | Lost]) -> "History":
        """The history with further records. Only the newest history of a log is continued."""
        assert self.length == len(self._records), "this history was continued already"
        known, fold = self._records, _Fold(self)
        for record in more:
            reason = fold.take(record, known)
            if reason:
                broken = record_name(len(known))
                del known[self.length :]
                raise CheckpointDamaged(file=broken, reason=reason)
            known.append(record.instead or record if isinstance(record, Lost) else record)
        return History(
            fold.fence, fold.living, known, len(known), fold.lost, fold.mended, fold.lost_since_fence
        )

    def losing(self, number: int, reason: str) -> "History":
        """The history as it is for somebody who cannot read one of its records."""
        records = self._records[: self.length]
        return History(mended=self.mended).after([*records[:number], Lost(reason), *records[number + 1 :]])

    def supposing(self, record: Record) -> "History":
        """The history as if a record followed, without sharing anything with the real one."""
        return replace(self, _records=self._records[: self.length]).after([record])

    @property
    def incarnation(self) -> int:
        """The newest incarnation; -1 before the first."""
        return -1 if self.fence is None else self.fence.incarnation

    def next_incarnation(self) -> int:
        """The lowest number that a new incarnation can have; each lost record may have begun one."""
        return self.incarnation + 1 + self.lost_since_fence

    def records(self, since: int = 0) -> Iterator[tuple[int, Record | Lost]]:
        """Records with their numbers, from a number on."""
        for number in range(since, self.length):
            yield number, self._records[number]

    def checkpoints(self) -> list[Committed]:
        """Every checkpoint that exists, oldest first."""
        return list(self.living.values())

    def good(self) -> list[Committed]:
        """Those in which no damage was found, oldest first."""
        return [committed for committed in self.living.values() if committed.good]

    def quarantined(self) -> list[Committed]:
        """Those in which damage was found, oldest first; ``damage`` says what."""
        return [committed for committed in self.living.values() if not committed.good]

    def newest_good(self) -> Committed | None:
        """The last in the log, which need not be the highest step."""
        return next((committed for committed in reversed(self.living.values()) if committed.good), None)

    def at_step(self, step: int) -> Committed | None:
        """The last good one of a step."""
        return next(
            (
                committed
                for committed in reversed(self.living.values())
                if committed.good and committed.step == step
            ),
            None,
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


class _Fold:
    """What records amount to, taken one after another."""

    def __init__(self, before: History) -> None:
        self.fence, self.living = before.fence, dict(before.living)
        self.lost, self.mended, self.lost_since_fence = before.lost, before.mended, before.lost_since_fence

    def take(self, record: Record | Lost, known: "list[Record | Lost]") -> str:
        """Which rule of the log a record breaks, or nothing; then it counts."""
        number = len(known)
        if isinstance(record, Lost):
            if record.instead is None:
                self.lost += (number,)
                self.lost_since_fence += 1
                return ""
            # Rebuilt as well as could be; what does not fit is passed over.
            self.mended = True
            if not self._broken_rule(record.instead, known):
                self._apply(record.instead, number)
            return ""
        reason = self._broken_rule(record, known)
        if not reason:
            self._apply(record, number)
        return reason

    def _broken_rule(self, record: Record, known: "list[Record | Lost]") -> str:
        newest = -1 if self.fence is None else self.fence.incarnation
        if isinstance(record, Fence):
            return (
                f"incarnation {record.incarnation} follows {newest}" if record.incarnation <= newest else ""
            )
        if isinstance(record, Commit):
            # A lost record may have been its fence.
            fits = record.incarnation == newest or (
                record.incarnation > newest and (self.lost_since_fence or self.mended)
            )
            return "" if fits else f"incarnation {record.incarnation} commits under {newest}"
        named = record.commits if isinstance(record, Retire) else (record.commit,)
        if len(set(named)) != len(named):
            return f"a commit is named twice in {named}"
        forgiving = bool(self.lost) or self.mended
        for number in named:
            if not 0 <= number < len(known) or not isinstance(known[number], Commit | Lost):
                if not (forgiving and 0 <= number < len(known)):
                    return f"there is no commit {number}"
            elif number not in self.living and not forgiving:
                return f"commit {number} was retired already"
            elif isinstance(record, Retire) and not forgiving and self.living[number].pins:
                return f"commit {number} is pinned and was retired"
        return ""

    def _apply(self, record: Record, number: int) -> None:
        living = self.living
        match record:
            case Fence():
                self.fence, self.lost_since_fence = record, 0
            case Commit():
                if self.fence is None or record.incarnation > self.fence.incarnation:
                    self.fence = Fence(record.incarnation, ranks=0, token="", at=record.at)
                living[number] = Committed(number, record)
            case Retire(commits):
                for retired in commits:
                    living.pop(retired, None)
            case Quarantine(commit, reason) if commit in living:
                committed = living[commit]
                living[commit] = replace(committed, damage=committed.damage or reason or "damaged")
            case Pin(commit, by) if commit in living:
                living[commit] = replace(living[commit], pins=living[commit].pins | {by})
            case Unpin(commit, by) if commit in living:
                living[commit] = replace(living[commit], pins=living[commit].pins - {by})
