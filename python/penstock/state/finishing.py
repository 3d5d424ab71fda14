"""From a capture to a checkpoint that exists: written by every rank, committed by rank 0, known to all.

Ranks meet in the store alone. Each puts its part; rank 0 waits for all parts, checks that they make whole tensors, and commits;
the others wait for the commit. Whoever fails says so at once, so that nobody waits for a deadline to hear of it. Should the
log say at the commit that files this save refers to are gone, all write what they left out, and rank 0 commits again.
"""

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from penstock import events
from penstock._rust import digest
from penstock.errors import ObjectMissing, PenstockError, RanksMissing, SaveFailed, StoreError
from penstock.events.points import reach
from penstock.state.checkpoint import checkpoint_of
from penstock.state.committing import Gone, commit
from penstock.state.history import Committed
from penstock.state.incarnations import check_newest
from penstock.state.leaving import Event
from penstock.state.log import Log
from penstock.state.manifest import Manifest
from penstock.state.manifest_copies import put_manifest
from penstock.state.parts import Part, assemble, read_part
from penstock.state.records import Commit
from penstock.state.references import References, is_ours
from penstock.state.saving import Capture, Failure
from penstock.state.waiting import Clock, Wait
from penstock.state.writing import Captured, Destination, Known, Written, write
from penstock.store import Store, open_store

_PAUSE_S = 0.25
#: A save writes everything at the latest in the second round, so a third would mean that its own files are pruned.
_ROUNDS_MAX = 3
_LOG = logging.getLogger("penstock.state")


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
    #: Other ranks are not waited for any more.
    given_up: Event = field(default_factory=Event)

    def finish(self, capture: Capture, attempt: int, metrics: dict[str, float]) -> tuple[Committed, Written]:
        """Make a capture a checkpoint."""
        capture.taken.copies.wait()
        reach("state.captured")
        folder = f"{self.incarnation}/{capture.step}-{attempt}"
        try:
            for round_ in range(_ROUNDS_MAX):
                parent = self.parent[1] if self.parent is not None and round_ == 0 else None
                known = Known(parent, capture.chunk_bytes)
                written = self.write(capture.taken.captured, known, self._about(capture, attempt))
                reach("state.written")
                name = f"parts/{folder}/{_part(capture.rank, round_)}"
                part = capture.part(written)
                if not self.store.put_if_absent(name, part.encode()):
                    raise SaveFailed(
                        step=capture.step,
                        reason=f"{name} exists already",
                        hint="give every start of the run a token of its own",
                    )
                reach("state.parted")
                committed = self._committed(capture, attempt, metrics, round_)
                if committed is not None:
                    return committed, written
        except PenstockError as problem:
            self._tell(folder, capture.rank, problem)
            raise
        raise SaveFailed(step=capture.step, reason="files that it wrote were pruned before it was committed")

    def _committed(
        self, capture: Capture, attempt: int, metrics: dict[str, float], round_: int
    ) -> Committed | None:
        """The commit, or nothing if another round is needed."""
        folder = f"parts/{self.incarnation}/{capture.step}-{attempt}"
        if capture.rank != 0:
            return self._await_commit(capture, attempt, f"{folder}/again-{round_}.json")
        parts = self._await_parts(capture, folder, round_)
        manifest = assemble(
            parts,
            run=self.run,
            step=capture.step,
            incarnation=self.incarnation,
            parent=self.parent[0] if self.parent is not None else "",
            chunk_bytes=capture.chunk_bytes,
        )
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
        made = Commit(
            incarnation=self.incarnation,
            step=capture.step,
            attempt=attempt,
            manifest=name,
            bytes=manifest.bytes,
            at=self.clock.now(),
            metrics=metrics,
        )
        outcome = commit(self.log, made, borrowed=borrowed, references=self.references, seen=self.seen)
        if isinstance(outcome, Gone):
            events.record("state.again", step=capture.step, files=len(outcome.files))
            self.store.put_if_absent(f"{folder}/again-{round_}.json", b"{}")
            return None
        reach("state.committed")
        self._alarm_if_unchanged(manifest)
        self.parent = (name, manifest)
        return outcome

    def _about(self, capture: Capture, attempt: int) -> tuple[int, int, int]:
        return capture.step, attempt, capture.rank

    def write(self, captured: list[Captured], known: Known, about: tuple[int, int, int]) -> Written:
        """Make captured shares durable; ``about`` is the step, its attempt and the rank."""
        step, attempt, rank = about
        stamp = {
            "penstock": "1",
            "run": self.run,
            "incarnation": str(self.incarnation),
            "step": str(step),
            "rank": str(rank),
        }
        return write(
            captured, known, self._destinations(f"data/{self.incarnation}/{step}-{attempt}/{rank}"), stamp
        )

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
            self._check_others(folder, capture.step)
            if not wait.again():
                missing = [rank for rank in range(capture.ranks) if rank not in parts]
                raise RanksMissing(
                    what=f"the checkpoint of step {capture.step}",
                    missing=missing,
                    ranks=capture.ranks,
                    waited_s=wait.waited_s,
                )

    def _await_commit(self, capture: Capture, attempt: int, again: str) -> Committed | None:
        wait = Wait(self.deadline_s, self.clock, self.given_up)
        mine = (self.incarnation, capture.step, attempt)
        while True:
            history = self.log.read()
            for number, made in reversed(history.commits()):
                if (made.incarnation, made.step, made.attempt) == mine:
                    found = Committed(number, made)
                    self.parent = (made.manifest, checkpoint_of(found, self.store).manifest)
                    return found
                if made.incarnation < self.incarnation:
                    break
            check_newest(history, self.incarnation, self.store.url)
            if self._get(again) is not None:
                return None
            self._check_others(again.rpartition("/")[0], capture.step)
            if not wait.again():
                raise RanksMissing(
                    what=f"the commit of step {capture.step}",
                    missing=[0],
                    ranks=capture.ranks,
                    waited_s=wait.waited_s,
                )

    def _tell(self, folder: str, rank: int, problem: PenstockError) -> None:
        """Let the other ranks know that this save will not come about."""
        document = {"rank": rank, "reason": str(problem)}
        try:
            self.store.put_if_absent(f"parts/{folder}/failed.json", msgspec.json.encode(document))
        except StoreError:
            # Then they find out by the deadline.
            _LOG.warning("rank %d could not tell the others that it failed", rank)

    def _check_others(self, folder: str, step: int) -> None:
        if (data := self._get(f"{folder}/failed.json")) is not None:
            found = msgspec.json.decode(data)
            raise SaveFailed(step=step, reason=f"rank {found['rank']}: {found['reason']}")

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
