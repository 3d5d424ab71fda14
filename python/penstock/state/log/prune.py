"""Prune: retire what nobody wishes to keep, then delete the files that no checkpoint names.

Why this takes nothing from anybody, however savers, pruners and new incarnations run at the same time:

1. The retire record comes first. Deleting begins from a history that was read after it, with some length *m*.
2. A data file is deleted only if no checkpoint that exists at *m* names it and one of two things holds: a save whose commit stands
   in the log before *m* wrote it, or an incarnation below the newest fence before *m* wrote it.
3. A commit at *m* or later names two sorts of files. Those it wrote itself: its save is not committed before *m* and its
   incarnation is the newest one, or the fence would have refused it, so by (2) they stay. Those it borrows: at its own
   number a good checkpoint that exists names them (``committing.commit`` looks). Take the first commit since *m* that borrows a
   deleted file. The checkpoint that names it neither borrowed it since *m*, as this is the first, nor wrote it since *m*, as such
   files stay. So it was committed before *m*, existed at *m* and named the file, and by (2) the file was not deleted.
4. A manifest is deleted only if its commit is retired or its incarnation is fenced; neither can be committed again.
   While a record of the log is lost, which may have been a commit, neither is deleted because of a fence alone.
5. A retire and a pin, or a retire and a quarantine of the newest good one, are records of one log: the later one has seen the
   earlier one.

All conditions of (2) and (4) stay true once they are true. So a pruner that was killed anywhere is simply run again, and
pruners do not have to know of each other.

Nothing is retired before the good checkpoints were looked at: manifest there and as committed, every file there and of
its size. Those that fail are quarantined first, so they never count as what is left (S7).
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from penstock import events
from penstock.errors import CheckpointDamaged, NumbersContended, ObjectMissing, PenstockError
from penstock.state.checkpoint import checkpoint_of
from penstock.state.load.lookup import missing_parts
from penstock.state.log.commit import quarantine
from penstock.state.log.history import Committed, History
from penstock.state.log.log import Log
from penstock.state.log.manifest_copies import manifest_copy_name
from penstock.state.log.records import Quarantine, Retire
from penstock.state.log.references import References
from penstock.state.log.retention import Keep, to_retire
from penstock.state.manifest import manifest_name
from penstock.state.ranks.clock import Clock
from penstock.store import Store

#: How often damage may be found, or a checkpoint be retired by somebody else, before a pruner gives up.
ROUNDS_MAX = 1000

_OF_SAVE = re.compile(r"(?:data|parts)/(\d+)/(\d+)-(\d+)/.+")
_OF_RESUME = re.compile(r"resume/(\d+)/.+")


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruner did, or would do."""

    #: Steps of the checkpoints that it retired, oldest first.
    retired: tuple[int, ...]
    #: Steps of those in which it found damage, with the reason.
    damaged: dict[int, str]
    #: Names of the files that it deleted, those of earlier retired checkpoints included.
    files: tuple[str, ...]
    bytes: int


class _Incarnation(msgspec.Struct):
    """As much of a manifest as tells whether it can still be committed."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class _View:
    """What has to be known to tell garbage from the rest, all of it as of one length of the log."""

    newest: int
    #: Incarnation, step and attempt of every save that was committed.
    committed: set[tuple[int, int, int]]
    #: The same of checkpoints whose manifest cannot be read: they keep at least what they wrote.
    kept_whole: set[tuple[int, int, int]]
    #: Data files and manifests that existing checkpoints name.
    named: set[str]
    retired_manifests: set[str]
    #: Whether a record is lost that may have been a commit: then only what retired checkpoints wrote is garbage.
    lossy: bool

    def is_garbage(self, name: str) -> bool:
        """Whether a data file, part or record of a resume can go."""
        if (resume := _OF_RESUME.fullmatch(name)) is not None:
            return int(resume[1]) < self.newest
        if (of := _OF_SAVE.fullmatch(name)) is None:
            # Whatever else somebody put there is not ours to delete.
            return False
        save = (int(of[1]), int(of[2]), int(of[3]))
        if name in self.named or (save in self.kept_whole and name.startswith("data/")):
            return False
        return save in self.committed or (save[0] < self.newest and not self.lossy)


def prune(
    log: Log,
    keep: Keep,
    *,
    references: References | None = None,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> Pruned:
    """Retire and delete; see the module's description. A dry run writes and deletes nothing and says what would happen."""
    clock = clock or Clock()
    references = references or References(log.store)
    history, damaged = _look(log, references, dry_run, clock)
    if history.fence is None:
        return Pruned((), {}, (), 0)
    newest = history.newest_good()

    def decide(known: History) -> Retire | None:
        # A checkpoint that came since the look was not looked at, so the newest of those that were stays as well.
        spared = set() if newest is None else {newest.number}
        numbers = tuple(number for number in to_retire(known, keep) if number not in spared)
        return Retire(commits=numbers, at=clock.now()) if numbers else None

    if dry_run:
        wanted = decide(history)
        retire, after = wanted, history if wanted is None else history.supposing(wanted)
    else:
        appended = log.append(decide)
        record = None if appended is None else appended.record
        assert record is None or isinstance(record, Retire)
        retire, after = record, log.read() if appended is None else appended.history
    retired = () if retire is None else tuple(after.commit(number).step for number in retire.commits)
    view, later = (_view(after, references), {}) if dry_run else _view_of(log, after, references, clock)
    files = _sweep(log.store, view, dry_run=dry_run)
    return Pruned(retired, {**damaged, **later}, tuple(files), sum(files.values()))


def prune_quietly(log: Log, keep: Keep, references: References) -> None:
    """Prune after a save. The checkpoint exists whatever comes of it; what should have gone is still there and goes next time."""
    try:
        prune(log, keep, references=references)
    except PenstockError as problem:
        events.record("state.prune_failed", reason=str(problem))


def _look(log: Log, references: References, dry_run: bool, clock: Clock) -> tuple[History, dict[int, str]]:
    """A history all of whose good checkpoints are whole by names and sizes; the others are quarantined now."""
    damaged: dict[int, str] = {}
    history = log.read()
    for _ in range(ROUNDS_MAX):
        # Listed after the log was read: what is committed by then has its files there.
        sizes = {entry.name: entry.bytes for entry in log.store.entries("data")}
        problem = next(_problems(log.store, history, references, sizes), None)
        if problem is None:
            return history, damaged
        checkpoint, reason = problem
        if dry_run:
            history = history.supposing(Quarantine(checkpoint.number, reason, -1, clock.now()))
            damaged[checkpoint.step] = reason
        else:
            # Not so if somebody retired it in the meantime, which is why its files are gone.
            if quarantine(log, checkpoint.number, reason, rank=-1, at=clock.now()):
                damaged[checkpoint.step] = reason
            history = log.read()
    raise NumbersContended(name=f"{log.store.url}/log", attempts=ROUNDS_MAX)


def _problems(
    store: Store, history: History, references: References, sizes: dict[str, int]
) -> Iterator[tuple[Committed, str]]:
    for checkpoint in history.good():
        try:
            named = references.of(checkpoint.commit)
            if _manifest_gone(store, checkpoint):
                raise CheckpointDamaged(
                    file=manifest_name(checkpoint.commit.manifest), reason="it is missing"
                )
            if any(
                sizes.get(name) != bytes_ and _size_problem(store, name, bytes_)
                for name, bytes_ in named.items()
            ):
                # It may be a second copy alone, or one that a second copy stands in for.
                reason = missing_parts(checkpoint_of(checkpoint, store))
                if reason:
                    yield checkpoint, reason
        except CheckpointDamaged as problem:
            yield checkpoint, str(problem)


def _manifest_gone(store: Store, checkpoint: Committed) -> bool:
    """Whether a manifest that was read before is there no longer, in either copy."""
    manifest = checkpoint.commit.manifest
    for name in (manifest_name(manifest), manifest_copy_name(manifest)):
        try:
            store.describe(name)
        except ObjectMissing:
            continue
        return False
    return True


def _size_problem(store: Store, name: str, bytes_: int) -> bool:
    """Ask for the file itself: listings may lag behind on shared file systems."""
    try:
        return store.describe(name).bytes != bytes_
    except ObjectMissing:
        return True


def _view_of(
    log: Log, history: History, references: References, clock: Clock
) -> tuple[_View, dict[int, str]]:
    """The view of the log from a history on that is read now; checkpoints that came since may be damaged too."""
    damaged: dict[int, str] = {}
    for _ in range(ROUNDS_MAX):
        unreadable = _unreadable(history, references)
        if unreadable is None:
            return _view(history, references), damaged
        checkpoint, reason = unreadable
        if quarantine(log, checkpoint.number, reason, rank=-1, at=clock.now()):
            damaged[checkpoint.step] = reason
        history = log.read()
    raise NumbersContended(name=f"{log.store.url}/log", attempts=ROUNDS_MAX)


def _unreadable(history: History, references: References) -> tuple[Committed, str] | None:
    for checkpoint in history.good():
        try:
            references.of(checkpoint.commit)
        except CheckpointDamaged as reason:
            return checkpoint, str(reason)
    return None


def _view(history: History, references: References) -> _View:
    named: set[str] = set()
    kept_whole = set()
    for checkpoint in history.checkpoints():
        commit = checkpoint.commit
        named.add(manifest_name(commit.manifest))
        try:
            named |= references.of(commit).keys()
        except CheckpointDamaged:
            kept_whole.add((commit.incarnation, commit.step, commit.attempt))
    return _View(
        newest=history.incarnation,
        committed={(entry.incarnation, entry.step, entry.attempt) for _, entry in history.commits()},
        kept_whole=kept_whole,
        named=named,
        retired_manifests={manifest_name(entry.manifest) for entry in history.retired().values()},
        lossy=bool(history.lost),
    )


def _sweep(store: Store, view: _View, *, dry_run: bool) -> dict[str, int]:
    """Delete garbage; names and bytes of it."""
    swept: dict[str, int] = {}
    for top in ("data", "parts", "resume", "manifests", "copies/manifests"):
        for entry in store.entries(top):
            garbage = (
                _is_spent(store, entry.name, view) if "manifests" in top else view.is_garbage(entry.name)
            )
            if garbage:
                swept[entry.name] = entry.bytes
                if not dry_run:
                    store.delete(entry.name)
    if not dry_run:
        _remove_folders(store, swept, view.newest)
    return swept


def _is_spent(store: Store, name: str, view: _View) -> bool:
    """Whether no commit can name a manifest any more."""
    first = name.removeprefix("copies/")
    if first in view.named:
        return False
    if first in view.retired_manifests:
        return True
    if view.lossy:
        return False
    try:
        return msgspec.json.decode(store.get(name), type=_Incarnation).incarnation < view.newest
    except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
        return False


def _remove_folders(store: Store, swept: dict[str, int], newest: int) -> None:
    """In a directory, remove folders that became empty and that nobody will write to again."""
    folders = {parent for name in swept for parent in PurePosixPath(name).parents if len(parent.parts) >= 2}
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        path = store.local_path(str(folder))
        if path is None:
            return
        # The folder of the newest incarnation is used by its next save.
        if len(folder.parts) > 2 or (folder.parts[1].isdecimal() and int(folder.parts[1]) < newest):
            with suppress(OSError):
                path.rmdir()
