"""Tiers: a second place behind the first, which gets a copy of the newest checkpoint while training goes on.

The first place is near and fast (a local disk, memory), the second is far and safe (an object store). Both have the same form and
their own log, so either can be read without the other. A copy takes the files that are not there yet, the manifest, and then
commits; a run that finds nothing in the first place, or less than in the second, first copies back from there.
"""

import mmap
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock import events
from penstock.errors import CheckpointDamaged, ObjectMissing, PenstockError
from penstock.state.checkpoint import Checkpoint, checkpoint_of
from penstock.state.log.commit import Gone, commit
from penstock.state.log.history import Committed
from penstock.state.log.incarnation import Member, fence, next_incarnation
from penstock.state.log.log import Log
from penstock.state.log.manifest_copies import put_manifest
from penstock.state.log.pins import pin, unpin
from penstock.state.log.prune import prune
from penstock.state.log.records import Commit
from penstock.state.log.references import References
from penstock.state.log.retention import Keep
from penstock.state.save.duplicates import duplicate_files
from penstock.store import Store, open_store

_PIECE_BYTES = 64 << 20


class Behind:
    """The second place of a run."""

    def __init__(self, place: str, keep: Keep | None, first: Log, member: Member) -> None:
        self._first = first
        self.store = open_store(place)
        self.log = Log(self.store)
        self.keep = keep
        self._member = member
        #: Rank 0 alone writes here, so nobody has to know its token, and no other start has it.
        self._token = uuid.uuid4().hex
        self._references = References(self.store)
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="penstock-promote")
        self._lock = threading.Lock()
        #: The newest that waits to be copied; older ones that waited are passed over.
        self._next: Checkpoint | None = None
        #: The last step that is safe there.
        self.promoted_step: int | None = None
        self.failures: list[PenstockError] = []

    def promote(self, checkpoint: Checkpoint) -> None:
        """Copy a checkpoint there soon; returns at once."""
        with self._lock:
            waiting, self._next = self._next, checkpoint
        if waiting is None:
            self._copier.submit(self._promote_next)

    def _promote_next(self) -> None:
        with self._lock:
            checkpoint, self._next = self._next, None
        if checkpoint is None:
            return
        try:
            # Pinned, so that what is copied is not pruned meanwhile.
            pin(self._first, checkpoint.number, self.store.url, at=time.time())
            try:
                with events.span("state.promote", step=checkpoint.step):
                    copy(checkpoint, self.log, self._begin(), self._references)
            finally:
                unpin(self._first, checkpoint.number, self.store.url, at=time.time())
            self.promoted_step = checkpoint.step
            if self.keep is not None:
                prune(self.log, self.keep, references=self._references)
        except PenstockError as problem:
            # The first place has it; the next one that is saved is tried again.
            self.failures.append(problem)
            events.record("state.promote_failed", step=checkpoint.step, reason=str(problem))

    def _begin(self) -> Member:
        history = self.log.read()
        own = self._member.incarnation
        assert own is not None, "the first place was fenced before"
        # Numbers of incarnations are counted per log; the token says whose they are.
        known = any(standing.token == self._token for _, standing in history.fences())
        number = None if known else max(own, next_incarnation(history, self.store))
        return fence(self.log, Member(0, self._member.ranks, self._token, number))

    def newest(self) -> Checkpoint | None:
        """The newest good one there."""
        committed = self.log.read().newest_good()
        return None if committed is None else checkpoint_of(committed, self.store)

    def wait(self) -> None:
        """Return when everything that was to be copied is there, or has failed."""
        self._copier.submit(lambda: None).result()

    def close(self) -> None:
        """Finish what was begun."""
        self._copier.shutdown(wait=True)


def copy(checkpoint: Checkpoint, log: Log, member: Member, references: References) -> Committed:
    """A checkpoint from its own place into another, where it exists when this returns."""
    store = log.store
    manifest = checkpoint.manifest
    for file in manifest.files:
        if "://" not in file.name:
            _copy_file(checkpoint.store, store, file.name, file.bytes)
    for name, bytes_ in duplicate_files(manifest).items():
        _copy_file(checkpoint.store, store, name, bytes_)
    put_manifest(store, checkpoint.digest, manifest.encode())
    references.remember(manifest)
    assert member.incarnation is not None, "fenced before"
    attempt = sum(earlier.step == checkpoint.step for _, earlier in log.read().commits())
    new_commit = Commit(
        incarnation=member.incarnation,
        step=checkpoint.step,
        attempt=attempt,
        manifest=checkpoint.digest,
        bytes=checkpoint.bytes,
        at=checkpoint.made,
        metrics=checkpoint.metrics,
    )
    outcome = commit(log, new_commit, borrowed=(), references=references)
    assert not isinstance(outcome, Gone), "nothing was borrowed"
    return outcome


def _copy_file(origin: Store, target: Store, name: str, bytes_: int) -> None:
    try:
        if target.describe(name).bytes == bytes_:
            return
        target.delete(name)
    except ObjectMissing:
        pass
    path = origin.local_path(name)
    try:
        if path is not None:
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as whole,
            ):
                target.put_buffers(name, [whole])
            return
        with tempfile.NamedTemporaryFile(prefix="penstock-tier-", dir=_room(target)) as whole_file:
            for at in range(0, bytes_, _PIECE_BYTES):
                whole_file.write(origin.get_range(name, at, min(_PIECE_BYTES, bytes_ - at)))
            whole_file.flush()
            target.put_file_if_absent(name, Path(whole_file.name))
    except (ObjectMissing, FileNotFoundError) as reason:
        raise CheckpointDamaged(file=name, reason="the file is missing") from reason


def _room(target: Store) -> Path | None:
    """Where a file can be put together so that the target need not copy it."""
    place = target.local_path("work")
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
    return place
