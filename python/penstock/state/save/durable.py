"""From a capture to a checkpoint that exists: written by every rank, committed by rank 0, known to all.

Ranks meet in the store alone. Each puts its part; rank 0 waits for all parts, checks that they make whole tensors, and commits;
the others wait for the commit. Whoever fails says so at once, so that nobody waits for a deadline to hear of it. Should the
log say at the commit that files this save refers to are gone, all write what they left out, and rank 0 commits again.
"""

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from penstock import events
from penstock._rust import digest
from penstock.errors import ObjectMissing, PenstockError, RanksMissing, SaveFailed, StoreError
from penstock.events.points import reach
from penstock.state.checkpoint import checkpoint_of
from penstock.state.log.commit import Gone, commit
from penstock.state.log.history import Committed
from penstock.state.log.incarnation import check_newest
from penstock.state.log.log import Log
from penstock.state.log.manifest_copies import put_manifest
from penstock.state.log.records import Commit
from penstock.state.log.references import References, is_ours
from penstock.state.manifest import Manifest, Tensor
from penstock.state.ranks.clock import Clock, Wait
from penstock.state.ranks.failure import RankFailure, check_failure, tell_failure
from penstock.state.ranks.meeting import Board
from penstock.state.save.abandonment import Event
from penstock.state.save.capture import Capture
from penstock.state.save.options import Failure
from penstock.state.save.parts import Origin, Part, assemble, names_apart, read_part
from penstock.state.save.write import Captured, Destination, Known, Written, joined, write
from penstock.store import Store, open_store

_PAUSE_S = 0.25
#: One round finds replicas that differ, one finds files gone and writes everything, so a fourth would mean that its own files are pruned.
_ROUNDS_MAX = 4
_LOG = logging.getLogger("penstock.state")


class Again(msgspec.Struct, frozen=True):
    """Why all ranks write once more, and what."""

    #: Files that the save referred to are gone: everything is written.
    gone: bool = True
    #: Names of replicas that differ: each rank writes its own.
    apart: list[str] = []


@dataclass(frozen=True, slots=True)
class SaveAttempt:
    """One try of one rank to save a step; names its files."""

    step: int
    attempt: int
    rank: int

    @property
    def folder(self) -> str:
        """Where its files are, below those of the incarnation."""
        return f"{self.step}-{self.attempt}/{self.rank}"


@dataclass(slots=True)
class Finisher:
    """Finishes the saves of one incarnation, one after another."""

    store: Store
    log: Log
    references: References
    run: str
    incarnation: int
    failure: Failure
    deadline_s: float
    #: Length of the history from which the state was loaded.
    seen: int | None = None
    #: The last checkpoint that was saved or loaded; pieces that did not change refer to its files.
    parent: tuple[str, Manifest] | None = None
    clock: Clock = field(default_factory=Clock)
    #: How often pieces are written that several checkpoints share.
    copies: int = 1
    #: Files in which damage was found: nothing refers to them any more.
    distrusted: frozenset[str] = frozenset()
    #: Small replicas that ranks are known to hold different contents of: each writes its own.
    apart: frozenset[str] = frozenset()
    #: Names that have been warned of.
    told: frozenset[str] = frozenset()
    #: Other ranks are not waited for any more.
    given_up: Event = field(default_factory=Event)

    @property
    def board(self) -> Board:
        """Where ranks that cannot talk to each other say what they hold."""
        return Board(self.store, self.incarnation, self.deadline_s, self.clock)

    def finish(self, capture: Capture, attempt: int, metrics: dict[str, float]) -> tuple[Committed, Written]:
        """Make a capture a checkpoint."""
        capture.taken.copies.wait()
        reach("state.captured")
        folder = f"{self.incarnation}/{capture.step}-{attempt}"
        try:
            checks = capture.checks()
            parent = self._trusted_parent()
            self.apart |= frozenset(() if parent is None else parent.kept_apart)
            written = [self._write(capture, attempt, self.apart, parent)]
            for round_ in range(_ROUNDS_MAX):
                reach("state.written")
                name = f"parts/{folder}/{_part(capture.rank, round_)}"
                if not self.store.put_if_absent(name, capture.part(written, checks).encode()):
                    raise SaveFailed(
                        step=capture.step,
                        reason=f"{name} exists already",
                        hint="give every start of the run a token of its own",
                    )
                reach("state.parted")
                outcome = self._committed(capture, attempt, metrics, round_)
                if isinstance(outcome, Committed):
                    return outcome, joined([writing for writing, _ in written])
                fresh = frozenset(outcome.apart) - self.apart
                self.apart |= fresh
                if outcome.gone:
                    written = [self._write(capture, attempt, self.apart, None)]
                else:
                    written.append(self._write_apart(capture, attempt, fresh))
        except Exception as problem:
            if capture.ranks > 1:
                self.tell((capture.step, attempt), capture.rank, problem)
            raise
        raise SaveFailed(step=capture.step, reason="files that it wrote were pruned before it was committed")

    def _trusted_parent(self) -> Manifest | None:
        """The parent without pieces in files that are known to be damaged: those are written again."""
        if self.parent is None or not self.distrusted:
            return None if self.parent is None else self.parent[1]
        manifest = self.parent[1]
        bad = {number for number, file in enumerate(manifest.files) if file.name in self.distrusted}

        def trusted(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {
                name: Tensor(
                    tensor.dtype, tensor.shape, [piece for piece in tensor.pieces if piece.file not in bad]
                )
                for name, tensor in tensors.items()
            }

        own = [msgspec.structs.replace(part, tensors=trusted(part.tensors)) for part in manifest.own]
        return msgspec.structs.replace(manifest, tensors=trusted(manifest.tensors), own=own)

    def _write(
        self, capture: Capture, attempt: int, apart: frozenset[str], parent: Manifest | None
    ) -> tuple[Written, frozenset[str]]:
        """What this rank writes; replicas that ranks keep apart are among it."""
        known = Known(parent, capture.plan.chunk_bytes, capture.rank)
        known.copies = self.copies
        return self.write(
            capture.shares(apart), known, SaveAttempt(capture.step, attempt, capture.rank)
        ), apart

    def _write_apart(
        self, capture: Capture, attempt: int, names: frozenset[str]
    ) -> tuple[Written, frozenset[str]]:
        """Replicas that have turned out to differ, in a file of their own."""
        known = Known(None, capture.plan.chunk_bytes, capture.rank)
        return self.write(
            capture.replicas(names), known, SaveAttempt(capture.step, attempt, capture.rank)
        ), names

    def _committed(
        self, capture: Capture, attempt: int, metrics: dict[str, float], round_: int
    ) -> Committed | Again:
        """The commit, or what to write in another round."""
        folder = f"parts/{self.incarnation}/{capture.step}-{attempt}"
        if capture.rank != 0:
            return self._await_commit(capture, attempt, f"{folder}/again-{round_}.json")
        parts = self._await_parts(capture, folder, round_)
        if apart := names_apart(parts, capture.plan.division, capture.step):
            return self._again(f"{folder}/again-{round_}.json", Again(gone=False, apart=apart))
        parent = self.parent[0] if self.parent is not None else ""
        origin = Origin(self.run, capture.step, self.incarnation, parent)
        manifest = assemble(parts, origin, capture.plan.division, capture.plan.chunk_bytes)
        data = manifest.encode()
        name = digest(data)
        reach("state.assembled")
        put_manifest(self.store, name, data)
        reach("state.described")
        self.references.remember(manifest)
        own = f"data/{self.incarnation}/{capture.step}-{attempt}/"
        borrowed = [
            file.name for file in manifest.files if not file.name.startswith(own) and is_ours(file.name)
        ]
        new_commit = Commit(
            incarnation=self.incarnation,
            step=capture.step,
            attempt=attempt,
            manifest=name,
            bytes=manifest.bytes,
            at=self.clock.now(),
            metrics=metrics,
        )
        outcome = commit(self.log, new_commit, borrowed=borrowed, references=self.references, seen=self.seen)
        if isinstance(outcome, Gone):
            events.record("state.again", step=capture.step, files=len(outcome.files))
            return self._again(f"{folder}/again-{round_}.json", Again())
        reach("state.committed")
        self._alarm_if_unchanged(manifest)
        self._warn_if_apart(manifest)
        self.parent = (name, manifest)
        return outcome

    def _again(self, name: str, again: Again) -> Again:
        """Let all ranks write once more."""
        self.store.put_if_absent(name, msgspec.json.encode(again))
        return again

    def write(self, captured: list[Captured], known: Known, mine: SaveAttempt) -> Written:
        """Make captured shares durable."""
        stamp = {
            "penstock": "1",
            "run": self.run,
            "incarnation": str(self.incarnation),
            "step": str(mine.step),
            "rank": str(mine.rank),
        }
        return write(captured, known, self._destinations(f"data/{self.incarnation}/{mine.folder}"), stamp)

    def _destinations(self, stem: str) -> Iterator[Destination]:
        """Where to write, and where else: the place itself, again after a pause, and then the spill."""
        for attempt in range(self.failure.retries + 1):
            if attempt:
                self.clock.pause(_PAUSE_S * 2**attempt)
            # A name of its own for every try: a file that a manifest names is never written to.
            name = f"{stem}-{uuid.uuid4().hex[:8]}.safetensors"
            yield Destination(self.store, name, name)
        if self.failure.spill is not None:
            spill = open_store(self.failure.spill)
            name = f"{stem}-{uuid.uuid4().hex[:8]}.safetensors"
            yield Destination(spill, name, f"{spill.url}/{name}")

    def _await_parts(self, capture: Capture, folder: str, round_: int) -> list[Part]:
        parts: dict[int, Part] = {}
        wait = Wait(self.deadline_s, self.clock, self.given_up)
        while True:
            for rank in range(capture.ranks):
                name = f"{folder}/{_part(rank, round_)}"
                if rank not in parts and (data := self._get(name)) is not None:
                    parts[rank] = read_part(name, data)
            if len(parts) == capture.ranks:
                return [parts[rank] for rank in range(capture.ranks)]
            check_failure(self.store, folder, capture.step)
            if not wait.again():
                missing = [rank for rank in range(capture.ranks) if rank not in parts]
                raise RanksMissing(
                    what=f"the checkpoint of step {capture.step}",
                    missing=missing,
                    ranks=capture.ranks,
                    waited_s=wait.waited_s,
                )

    def _await_commit(self, capture: Capture, attempt: int, again: str) -> Committed | Again:
        wait = Wait(self.deadline_s, self.clock, self.given_up)
        mine = (self.incarnation, capture.step, attempt)
        while True:
            history = self.log.read()
            for number, candidate in reversed(history.commits()):
                if (candidate.incarnation, candidate.step, candidate.attempt) == mine:
                    committed = Committed(number, candidate)
                    self.parent = (candidate.manifest, checkpoint_of(committed, self.store).manifest)
                    return committed
                if candidate.incarnation < self.incarnation:
                    break
            check_newest(history, self.incarnation, self.store.url)
            if (data := self._get(again)) is not None:
                return msgspec.json.decode(data, type=Again)
            check_failure(self.store, again.rpartition("/")[0], capture.step)
            if not wait.again():
                raise RanksMissing(
                    what=f"the commit of step {capture.step}",
                    missing=[0],
                    ranks=capture.ranks,
                    waited_s=wait.waited_s,
                )

    def tell(self, save: tuple[int, int], rank: int, problem: Exception) -> None:
        """Let the other ranks know that a save, by its step and attempt, will not come about."""
        folder = f"parts/{self.incarnation}/{save[0]}-{save[1]}"
        try:
            tell_failure(self.store, folder, RankFailure.of(rank, problem))
        except StoreError:
            # Then they find out by the deadline.
            _LOG.warning("rank %d could not tell the others that it failed", rank)

    def _warn_if_apart(self, manifest: Manifest) -> None:
        """Say once of every name that ranks hold different contents under it."""
        fresh = [name for name in manifest.kept_apart if name not in self.told]
        if not fresh or manifest.ranks == 1:
            return
        self.told |= frozenset(fresh)
        shown = ", ".join(fresh[:8]) + (f" and {len(fresh) - 8} more" if len(fresh) > 8 else "")
        events.record("state.apart", step=manifest.step, names=shown, count=len(fresh))
        _LOG.warning(
            "ranks hold different contents, so each keeps its own, and only as many ranks can resume from it: %s",
            shown,
        )

    def _get(self, name: str) -> bytes | None:
        try:
            return self.store.get(name)
        except ObjectMissing:
            return None

    def _alarm_if_unchanged(self, manifest: Manifest) -> None:
        """Say it when nothing is new: a run that saves the same state again and again has lost its updates."""
        if self.parent is None or self.parent[1].step == manifest.step or not manifest.tensors:
            return
        before = self.parent[1].tensors
        if all(
            name in before and before[name].identity == tensor.identity
            for name, tensor in manifest.tensors.items()
        ):
            events.record("state.unchanged", step=manifest.step, since=self.parent[1].step)
            _LOG.warning(
                "no tensor changed between steps %d and %d: is the saved tree the one that is trained?",
                self.parent[1].step,
                manifest.step,
            )


def _part(rank: int, round_: int) -> str:
    return f"{rank}.json" if round_ == 0 else f"{rank}-{round_}.json"


def tell_others(begin: Callable[[], Finisher], save: tuple[int, int], rank: int, problem: Exception) -> None:
    """Let ranks that wait in the store for this one know that it cannot take part in a save. Whoever cannot be told finds out by the deadline."""
    with suppress(PenstockError):
        begin().tell(save, rank, problem)
