"""Repair: give every record and manifest both of its copies again, and rebuild records that are lost in both.

A lost record is rebuilt from what else is there: a fence from the commits that follow it, a commit from a manifest that no other
record names, a retirement from checkpoints whose manifests are gone. What cannot be told (a pin, a quarantine) becomes a record that says
nothing, and is reported. Rebuilt lines say that they are (``records.REBUILT``); the first copy is replaced at once, so its
number is taken all the while.

Records are rebuilt under an incarnation that begins after what was lost: whoever is still at work with what it knew of the log cannot
commit from then on. An incarnation that answers is not repaired under its feet: that is refused.
"""

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.errors import CheckpointDamaged, NothingSaved, ObjectMissing
from penstock.state.checkpoint import checkpoint_of
from penstock.state.load.lookup import missing_parts
from penstock.state.log import record_copies
from penstock.state.log.history import Committed, History, record_name
from penstock.state.log.incarnation import Member, fence
from penstock.state.log.log import Log
from penstock.state.log.manifest_copies import get_manifest, manifest_copy_name
from penstock.state.log.record_copies import copy_name, page_name
from penstock.state.log.records import (
    LOST,
    REBUILT,
    Commit,
    Fence,
    Lost,
    Record,
    Retire,
    encode_line,
    read_line,
)
from penstock.state.log.watch import PERIOD_S, ask_for_life
from penstock.state.manifest import Manifest, manifest_name, read_manifest
from penstock.state.ranks.clock import Clock
from penstock.store import Store

#: An incarnation that is at work looks for questions this often, and needs a moment to answer.
PATIENCE_S = 2 * PERIOD_S + 5

_OF_SAVE = re.compile(r"data/(\d+)/(\d+)-(\d+)/.+")
_DIGEST = re.compile(r"(?:copies/)?manifests/([0-9a-f]+)\.json")


@dataclass(frozen=True, slots=True)
class Mend:
    """One thing that a repair does, or would do."""

    #: The object that is written.
    name: str
    #: Why, and with what.
    what: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What becomes of a lost record."""

    number: int
    reason: str
    record: Record

    @property
    def what(self) -> str:
        """In words."""
        match self.record:
            case Fence(incarnation):
                return f"the beginning of incarnation {incarnation}"
            case Commit(incarnation, step):
                return f"the checkpoint of step {step}, of incarnation {incarnation}"
            case Retire(commits) if commits:
                return f"the retirement of {len(commits)} checkpoints whose manifests are gone"
        return "nothing: it may have been a pin, a quarantine or a checkpoint that is gone"


@dataclass(slots=True)
class Repaired:
    """What a repair did, or would do."""

    mends: list[Mend] = field(default_factory=list)
    rebuilt: list[Rebuilt] = field(default_factory=list)
    #: Records of a log that is gone altogether.
    appended: list[Record] = field(default_factory=list)
    #: The incarnation that the repair began, if it had to.
    incarnation: int | None = None

    @property
    def nothing(self) -> bool:
        """Whether everything is as it should be."""
        return not (self.mends or self.rebuilt or self.appended)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "mended": [{"name": mend.name, "what": mend.what} for mend in self.mends],
            "rebuilt": [
                {"number": entry.number, "reason": entry.reason, "what": entry.what} for entry in self.rebuilt
            ],
            "appended": [msgspec.to_builtins(record) for record in self.appended],
            "incarnation": self.incarnation,
        }


def repair(
    store: Store, *, dry_run: bool = False, patience_s: float = PATIENCE_S, clock: Clock | None = None
) -> Repaired:
    """Repair a place; see the module's description. A dry run changes nothing and says what would be done. Where nothing was ever saved,
    that is an error.

    ``patience_s``: how long an incarnation that may be at work is given to say so; it answers within ``PERIOD_S``.
    """
    clock = clock or Clock()
    log = Log(store)
    done = _plan(log, clock)
    if done.nothing and log.read().length == 0:
        # A misspelt place is none that needs no repair.
        raise NothingSaved(place=store.url)
    if dry_run or done.nothing:
        return done
    ask_for_life(store, patience_s=patience_s, clock=clock)
    # What was found before the question may have been a writer between its two copies.
    done = _plan(log, clock)
    for record in done.appended:
        log.append(lambda _, record=record: record)  # type: ignore[misc]
    if done.rebuilt or done.appended:
        done.incarnation = fence(log, Member(0, 1, uuid.uuid4().hex), clock=clock).incarnation
    for rebuilt in done.rebuilt:
        _rebuild(store, rebuilt)
    if done.rebuilt:
        # Pages can be put together again now.
        known = {mend.name for mend in done.mends}
        done.mends += [mend for mend in _of_records(store, log.read_anew()) if mend.name not in known]
    for mend in done.mends:
        store.replace(mend.name, mend.data)
    log.read_anew()
    return done


def _plan(log: Log, clock: Clock) -> Repaired:
    history = log.read_anew()
    done = Repaired()
    if history.length == 0:
        done.appended = list(_all_anew(log.store, clock))
    done.rebuilt = list(_lost(log.store, history))
    done.mends = [*_of_records(log.store, history), *_of_manifests(log.store, history, done)]
    return done


def _rebuild(store: Store, lost: Rebuilt) -> None:
    """Put the line in the place of the one that cannot be read. It follows whatever can be read before it."""
    after = ""
    if lost.number:
        before = record_copies.read_taken(store, lost.number - 1)
        after = LOST if isinstance(before, Lost) else read_line("", before, lost.number - 1).check
    line = encode_line(lost.number, after, REBUILT, lost.record)
    store.replace(record_name(lost.number), line)
    store.replace(copy_name(lost.number), line)


def _of_records(store: Store, history: History) -> Iterator[Mend]:
    """Copies of records that are missing or damaged while another one is whole."""
    pages = {page for page in record_copies.pages(store) if _page_is_whole(store, *page)}
    for size, page in sorted(record_copies.pages(store) - pages):
        lines = [record_copies.read_taken(store, number) for number in range(page * size, (page + 1) * size)]
        whole = [line for line in lines if isinstance(line, bytes)]
        if len(whole) == size:
            yield Mend(page_name(size, page), "the page is damaged", b"\n".join(whole))
    for number in range(history.length):
        if number in history.lost:
            continue
        paged = any((size, number // size) in pages for size in record_copies.PAGE_SIZES)
        names = [record_name(number)] if paged else [record_name(number), copy_name(number)]
        bad = [(name, reason) for name in names if (reason := _record_problem(store, name, number))]
        line = record_copies.read_taken(store, number) if bad else b""
        for name, reason in bad:
            assert isinstance(line, bytes), "it is not lost"
            yield Mend(name, f"{reason}; another copy is whole", line)


def _record_problem(store: Store, name: str, number: int) -> str:
    try:
        read_line(name, store.get(name), number)
    except ObjectMissing:
        return "the record is missing"
    except CheckpointDamaged:
        return "the record is damaged"
    return ""


def _page_is_whole(store: Store, size: int, page: int) -> bool:
    try:
        lines = store.get(page_name(size, page)).split(b"\n")
        for at, line in enumerate(lines):
            read_line("", line, page * size + at)
    except (ObjectMissing, CheckpointDamaged):
        return False
    return len(lines) == size


def _of_manifests(store: Store, history: History, done: Repaired) -> Iterator[Mend]:
    """Copies of manifests that are missing or damaged while the other one is whole."""
    commits = [committed.commit for committed in history.checkpoints()]
    rebuilt = [*done.appended, *(entry.record for entry in done.rebuilt)]
    commits += [record for record in rebuilt if isinstance(record, Commit)]
    for commit in commits:
        names = (manifest_name(commit.manifest), manifest_copy_name(commit.manifest))
        copies = {name: _whole_manifest(store, name, commit.manifest) for name in names}
        whole = next((data for data in copies.values() if data is not None), None)
        for name, data in copies.items():
            if data is None and whole is not None:
                yield Mend(name, "the manifest is missing or damaged; another copy is whole", whole)


def _whole_manifest(store: Store, name: str, manifest: str) -> bytes | None:
    try:
        data = store.get(name)
        read_manifest(name, data, manifest)
    except (ObjectMissing, CheckpointDamaged):
        return None
    return data


def _lost(store: Store, history: History) -> Iterator[Rebuilt]:
    """What each lost record was, as well as can be told."""
    if not history.lost:
        return
    reasons = {number: record.reason for number, record in history.records() if isinstance(record, Lost)}
    orphans = _orphans(store, history)
    gone = [committed for committed in history.checkpoints() if not _has_manifest(store, committed)]
    retired = {
        number for _, record in history.records() if isinstance(record, Retire) for number in record.commits
    }
    fenced: set[int] = set()
    for number in history.lost:
        gap = _Gap.around(history, number)
        if gap.lacks_fence and gap.next_incarnation not in fenced:
            assert gap.next_incarnation is not None
            fenced.add(gap.next_incarnation)
            yield Rebuilt(
                number, reasons[number], Fence(gap.next_incarnation, 1, uuid.uuid4().hex, gap.before)
            )
            continue
        fitting = [] if number in retired else [orphan for orphan in orphans if gap.fits(orphan[1])]
        if fitting:
            # One that was made since the record before is the likelier one; others may be of saves that failed.
            chosen = next((orphan for orphan in fitting if orphan[1].made >= gap.before), fitting[-1])
            orphans.remove(chosen)
            yield Rebuilt(number, reasons[number], _commit_of(*chosen))
            continue
        commits = tuple(committed.number for committed in gone if committed.number < number)
        gone = [committed for committed in gone if committed.number >= number]
        yield Rebuilt(number, reasons[number], Retire(commits, gap.before))


@dataclass(frozen=True, slots=True)
class _Gap:
    """What is known on both sides of a lost record."""

    #: The newest incarnation before it, and that of the first commit after it.
    incarnation: int
    next_incarnation: int | None
    #: Whether a fence that can be read comes before that commit.
    fence_follows: bool
    #: When the commits beside it were made.
    before: float
    until: float

    @staticmethod
    def around(history: History, number: int) -> "_Gap":
        earlier = [record for at, record in history.records() if at < number and not isinstance(record, Lost)]
        later = [record for at, record in history.records() if at > number and not isinstance(record, Lost)]
        incarnations = [record.incarnation for record in earlier if isinstance(record, Fence | Commit)]
        following = next((record for record in later if isinstance(record, Fence | Commit)), None)
        return _Gap(
            incarnation=max(incarnations, default=-1),
            next_incarnation=None if following is None else following.incarnation,
            fence_follows=isinstance(following, Fence),
            # Others who put records may have other clocks.
            before=max((record.at for record in earlier if isinstance(record, Commit)), default=0.0),
            until=min((record.at for record in later if isinstance(record, Commit)), default=float("inf")),
        )

    @property
    def lacks_fence(self) -> bool:
        """Whether commits follow whose fence cannot be read."""
        return (
            self.next_incarnation is not None
            and self.next_incarnation > self.incarnation
            and not self.fence_follows
        )

    def fits(self, manifest: Manifest) -> bool:
        """Whether the commit of a manifest can have stood here. It was made a little before its commit."""
        high = float("inf") if self.next_incarnation is None else self.next_incarnation
        return self.incarnation <= manifest.incarnation <= high and manifest.made <= self.until


def _orphans(store: Store, history: History) -> list[tuple[str, Manifest]]:
    """Manifests that no record names, with all of their files, in the order in which they were made."""
    named = {commit.manifest for _, commit in history.commits()}
    unnamed = [orphan for orphan in _manifests(store) if orphan[0] not in named]
    return [orphan for orphan in unnamed if not missing_parts(checkpoint_of(_committed(*orphan), store))]


def _manifests(store: Store) -> list[tuple[str, Manifest]]:
    digests: set[str] = set()
    for top in ("manifests", "copies/manifests"):
        names = (_DIGEST.fullmatch(entry.name) for entry in store.entries(top))
        digests |= {f"b3:{name[1]}" for name in names if name}
    manifests = []
    for digest in sorted(digests):
        try:
            manifests.append((digest, get_manifest(store, digest)))
        except CheckpointDamaged:
            continue
    return sorted(manifests, key=lambda entry: (entry[1].incarnation, entry[1].made))


def _has_manifest(store: Store, checkpoint: Committed) -> bool:
    try:
        get_manifest(store, checkpoint.commit.manifest)
    except CheckpointDamaged as problem:
        return problem.reason != "the manifest is missing"
    return True


def _commit_of(manifest_digest: str, manifest: Manifest) -> Commit:
    """The commit of a manifest. Its metrics were in the record alone, and are lost."""
    saves = (_OF_SAVE.fullmatch(file.name) for file in manifest.files)
    own = [
        int(save[3])
        for save in saves
        if save and (int(save[1]), int(save[2])) == (manifest.incarnation, manifest.step)
    ]
    return Commit(
        incarnation=manifest.incarnation,
        step=manifest.step,
        attempt=max(own, default=0),
        manifest=manifest_digest,
        bytes=manifest.bytes,
        at=manifest.made,
    )


def _committed(manifest_digest: str, manifest: Manifest) -> Committed:
    return Committed(-1, _commit_of(manifest_digest, manifest))


def _all_anew(store: Store, clock: Clock) -> Iterator[Record]:
    """The records of a log of which nothing is left, from the manifests alone."""
    newest = -1
    for manifest_digest, manifest in _orphans(store, History()):
        if manifest.incarnation > newest:
            newest = manifest.incarnation
            yield Fence(newest, manifest.ranks, uuid.uuid4().hex, clock.now())
        yield _commit_of(manifest_digest, manifest)
