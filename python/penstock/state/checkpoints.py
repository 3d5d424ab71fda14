"""The checkpoints of a run, in one place: save, find, load, resume, prune.

Everything here may be used by one thread at a time; the work behind a save goes on in threads of its own, which end with
``close`` or with the process, after what they have begun.
"""

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from msgspec.structs import replace

from penstock import events
from penstock.errors import CheckpointDamaged, CheckpointUnknown, PenstockError, UsageError
from penstock.events.points import reach
from penstock.state.checkpoint import Checkpoint, checkpoint_of
from penstock.state.contract import Tree
from penstock.state.load.fallback import entries_of, fill
from penstock.state.load.fit import LoadReport
from penstock.state.load.lookup import (
    missing_parts,
    newest_that,
    newest_whole,
    refuse_emptiness,
)
from penstock.state.load.selection import LoadKeywords, Rename, Wish
from penstock.state.load.spoilage import check_whole
from penstock.state.log.history import Committed, History
from penstock.state.log.incarnation import Member, fence
from penstock.state.log.log import Log
from penstock.state.log.pins import pin
from penstock.state.log.prune import Pruned, prune, prune_quietly
from penstock.state.log.references import References
from penstock.state.log.retention import Keep
from penstock.state.log.watch import Watch
from penstock.state.manifest import Manifest
from penstock.state.ranks.agreement import agree, await_choice
from penstock.state.ranks.one_place import check_one_place, host_position
from penstock.state.ranks.rank_group import Ranks
from penstock.state.ranks.roll import call
from penstock.state.save.arenas import Arenas
from penstock.state.save.capture import (
    Capture,
    Pending,
    Taken,
    capture,
    movers_of,
    numbers_of,
    plan_of,
    take,
    undisturbed,
)
from penstock.state.save.durable import Finisher, SaveAttempt, tell_others
from penstock.state.save.options import SaveKeywords, SaveOptions
from penstock.state.save.patrol import Patrol
from penstock.state.save.stowage import room_to_prepare
from penstock.state.save.tiers import Behind, copy
from penstock.state.save.write import Known, Written
from penstock.state.tree import PlainTree
from penstock.store import open_store


class Checkpoints:
    """A place of checkpoints, as one rank uses it.

    ``rank`` and ``ranks`` matter for plain trees; those of ``penstock.torch.state`` know them. Ranks of one start share a ``token``,
    which is made of their launcher's variables unless it is given, or an ``incarnation`` that the launcher counts.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        *,
        keep: Keep | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        token: str | None = None,
        incarnation: int | None = None,
        **saving: Unpack[SaveKeywords],
    ) -> None:
        options = SaveOptions(**saving)
        self.store = open_store(place)
        self.keep = keep
        self.log = Log(self.store)
        self._references = References(self.store)
        self._options = options
        self._ranks = Ranks(rank, ranks, token or "", options.replicas)
        self._incarnation = incarnation
        self._arenas = Arenas(options.captures)
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="penstock-save")
        #: This rank of the incarnation, once it has begun.
        self._member: Member | None = None
        self._finisher: Finisher | None = None
        #: Looks for newer incarnations, once this one has begun.
        self._watch: Watch | None = None
        #: Reads again what saves refer to.
        self._patrol: Patrol | None = None
        #: The second place, on the rank that commits.
        self._behind: Behind | None = None
        #: Length of the log when a state was last loaded, and what was loaded.
        self._seen: int | None = None
        self._loaded: Checkpoint | None = None
        self._attempts: Counter[int] = Counter()
        self._pending: list[Pending] = []
        self._choice = 0
        #: Saves that failed and were not raised, because the policy is to go on.
        self.failures: list[PenstockError] = []
        #: What the last load filled and what it did not.
        self.report = LoadReport()

    def save(
        self,
        step: int,
        tree: Any,
        entries: dict[str, Any] | Callable[[], dict[str, Any]] | None = None,
        *,
        metrics: dict[str, float] | Callable[[], dict[str, float]] | None = None,
    ) -> Pending:
        """Capture a state and return; the checkpoint exists when ``wait`` of what is returned does.

        ``tree`` is what ``penstock.torch.state`` makes, or nested dicts and lists of tensors and plain values. ``entries`` are
        documents beside it, such as a cursor. ``metrics`` are numbers that retention can go by. Functions of them are called when the copies
        are under way, and may still call the save off by raising.
        """
        began = time.perf_counter()
        if self._options.read_only:
            raise UsageError("these checkpoints were opened for reading", hint="open them without read_only")
        if type(step) is not int or step < 0:
            raise UsageError(f"step must be a whole number from 0, got {step!r}")
        attempt = self._attempts[step]
        self._attempts[step] += 1
        with self._ranks.declining(tree, (step, attempt), self._begun):
            state = self._ranks.tree(tree)
            measured = metrics if callable(metrics) else numbers_of(metrics or {})
            self.check()
            check_whole(state.root if isinstance(state, PlainTree) else state)
        self._ranks.agree_on_token(state, self._incarnation, step)
        with events.span("state.capture", step=step), undisturbed():
            reach("state.capture")
            captured, numbers = self._capture((step, attempt), state, entries or {}, measured)
        pending = Pending(step, captured.taken.copies, time.perf_counter() - began)
        self._pending = [save for save in self._pending if not (save.done() and save.noticed)] + [pending]
        self._saver.submit(self._finish, captured, attempt, numbers, pending, began)
        return pending

    def _capture(
        self, save: tuple[int, int], state: Tree, entries: Any, metrics: Any
    ) -> tuple[Capture, dict[str, float]]:
        """Copy a state, write now what memory for captures does not hold, and ask for what is known late."""
        step, deadline_s = save[0], self._options.deadline_s
        held, division, waves = self._ranks.divided(state, save, self._begun, self._options.memory_bytes)
        *first, last = waves
        with self._telling(save, state.rank, state.ranks):
            plan = plan_of(step, held, division, last)
            earlier: list[Written] = []
            for wave in first:
                taken = take(step, held, wave, self._arenas, deadline_s=deadline_s)
                try:
                    mine = SaveAttempt(*save, state.rank)
                    writing = self._saver.submit(self._write_wave, taken, plan.chunk_bytes, mine, state.ranks)
                    earlier.append(writing.result())
                finally:
                    self._arenas.give(taken.arena)
            taken = take(step, held, last, self._arenas, deadline_s=deadline_s)
            try:
                captured = capture(state, entries() if callable(entries) else entries, plan, taken, earlier)
                state.on_save(taken.copies)
                return captured, numbers_of(metrics()) if callable(metrics) else metrics
            except BaseException:
                taken.copies.wait()
                self._arenas.give(taken.arena)
                raise

    @contextmanager
    def _telling(self, save: tuple[int, int], rank: int, ranks: int) -> Iterator[None]:
        """Ranks that have agreed on a save wait for the part of each: whatever is raised inside is told to the others, by the saver's thread."""
        try:
            yield
        except Exception as problem:
            if ranks > 1:
                self._saver.submit(tell_others, partial(self._begin, rank, ranks), save, rank, problem)
            raise

    def _begun(self, rank: int, ranks: int) -> Finisher:
        """Begin in the thread that saves, unless that has happened."""
        return self._finisher or self._saver.submit(self._begin, rank, ranks).result()

    def _write_wave(self, taken: Taken, chunk_bytes: int, mine: SaveAttempt, ranks: int) -> Written:
        taken.copies.wait()
        return self._begin(mine.rank, ranks).write(taken.captured, Known(None, chunk_bytes), mine)

    def _finish(
        self, captured: Capture, attempt: int, metrics: dict[str, float], pending: Pending, began: float
    ) -> None:
        """What happens behind training's back."""
        try:
            finisher = self._begin(captured.rank, captured.ranks)
            finisher.distrusted = frozenset() if self._patrol is None else self._patrol.damaged
            self._ranks.follow(captured.plan.division, finisher, f"{captured.step}-{attempt}")
            committed, written = finisher.finish(captured, attempt, metrics)
            pending.durable_s = time.perf_counter() - began
            pending.bytes_written = written.bytes_written
            if captured.rank == 0 and finisher.parent is not None:
                pending.kept_apart = finisher.parent[1].kept_apart
            events.record(
                "state.saved",
                step=captured.step,
                blocked_s=pending.blocked_s,
                durable_s=pending.durable_s,
                bytes=captured.bytes,
                written=written.bytes_written,
            )
            checkpoint = checkpoint_of(committed, self.store)
            if self._behind is not None:
                self._behind.promote(checkpoint)
            pending.settle(checkpoint)
            if self._patrol is not None and finisher.parent is not None:
                self._patrol.look(finisher.parent[1], written.borrowed)
        except PenstockError as problem:
            events.record("state.save_failed", step=captured.step, reason=str(problem))
            if self._options.failure.then == "continue":
                self.failures.append(problem)
                pending.noticed = True
            pending.fail(problem)
        except BaseException as problem:
            pending.fail(problem)
            raise
        finally:
            if pending.error is not None:
                self._ranks.doubt()
            self._arenas.give(captured.taken.arena)
        if self.keep is not None and captured.rank == 0 and pending.error is None:
            prune_quietly(self.log, self.keep, self._references)

    def _begin(self, rank: int, ranks: int) -> Finisher:
        """The incarnation begins with its first save, or when it resumes."""
        if self._finisher is None:
            # Others know it by its number then.
            counted = uuid.uuid4().hex if rank == 0 and self._incarnation is not None else ""
            wanted = Member(rank, ranks, self._ranks.token or counted, self._incarnation)
            limit_s = self._options.deadline_s
            check_one_place(self.store, host_position(), ranks, deadline_s=limit_s)
            if self._ranks.drawn:
                self._member = fence(self.log, wanted, deadline_s=limit_s)
            else:
                self._member = call(self.log, wanted, self._ranks.process, deadline_s=limit_s)
            assert self._member.incarnation is not None, "a fence has a number"
            if self._options.behind is not None and rank == 0:
                self._behind = Behind(
                    self._options.behind, self._options.keep_behind or self.keep, self.log, self._member
                )
            if self._watch is None:
                self._watch = Watch(
                    self.log, self._member.incarnation, answers=rank == 0, period_s=self._options.watch_s
                )
            self._finisher = Finisher(
                store=self.store,
                log=self.log,
                references=self._references,
                run=self._options.run or self.store.url.rpartition("/")[2],
                incarnation=self._member.incarnation,
                failure=self._options.failure,
                deadline_s=self._options.deadline_s,
                seen=self._seen,
                parent=self._parent(),
                copies=1 if self.keep is None else self.keep.copies,
            )
            self._patrol = Patrol(self.log, rank)
        return self._finisher

    def _parent(self) -> "tuple[str, Manifest] | None":
        """What the first save is compared with: what was loaded, or the base, which from now on stays where it is."""
        if self._loaded is not None:
            return self._loaded.digest, self._loaded.manifest
        base = self._options.base
        if base is None:
            return None
        pin(Log(base.store), base.number, self.store.url, at=time.time())
        files = [
            file if "://" in file.name else replace(file, name=f"{base.store.url}/{file.name}", duplicates=())
            for file in base.manifest.files
        ]
        return base.digest, replace(base.manifest, files=files)

    def check(self) -> None:
        """Raise what went wrong behind training's back: a save that failed and nobody was told of, or ``Fenced`` once a newer
        incarnation stands in the log, which a thread reads every ``watch_s`` seconds.

        Reads flags and asks nobody, so a loop may call it after every step: then a save that failed raises after the step in which it
        failed, and a job that was replaced stops within seconds instead of at its next save.
        """
        if self._watch is not None and self._watch.fenced is not None:
            raise self._watch.fenced
        self._raise_unnoticed()

    def _raise_unnoticed(self) -> None:
        for pending in self._pending:
            if pending.error is not None and not pending.noticed:
                pending.wait()

    def prepare(self, tree: Any) -> None:
        """Have memory ready for saving a tree like this; returns at once. The first save is then as quick as the others."""
        state = self._ranks.tree(tree)
        held = state.held()
        self._arenas.prepare(room_to_prepare(held, self._options.memory_bytes), movers_of(held))

    def latest(self, *, allow_empty: bool = False) -> Checkpoint | None:
        """The newest good checkpoint: its manifest is whole and its files are there in full. Others are quarantined with the reason.

        None if nothing was ever saved. If checkpoints exist and none of them is good, that is an error, unless ``allow_empty``.
        """
        checkpoint = newest_whole(self.log, rank=self._ranks.place[0], marks=not self._options.read_only)
        if checkpoint is None and not allow_empty:
            refuse_emptiness(self.log, None if self._member is None else self._member.incarnation)
        return checkpoint

    def list(self) -> Sequence[Checkpoint]:
        """Every checkpoint that exists, oldest first; ``damage`` says what is wrong with those that were quarantined."""
        return [checkpoint_of(committed, self.store) for committed in self.log.read().checkpoints()]

    def at(self, step: int) -> Checkpoint:
        """The checkpoint of a step."""
        history = self.log.read()
        committed = history.at_step(step)
        if committed is None:
            known = [other.step for other in history.good()]
            raise CheckpointUnknown(place=self.store.url, wanted=f"of step {step}", known=known)
        return checkpoint_of(committed, self.store)

    def load(
        self,
        checkpoint: Checkpoint | int,
        into: Any,
        *,
        strict: bool = True,
        only: "str | tuple[str, ...]" = (),
        rename: Rename = None,
        cast: bool = False,
        resize: Mapping[str, str] | None = None,
    ) -> Any:
        """Fill a tree in place from a checkpoint, or that of a step, whatever layout it was saved with; the tree.

        ``only`` restricts it to beginnings of names in the tree (``"model"``); generators are then left alone, unless ``"rng"`` is among them.
        ``rename`` says what the checkpoint calls them. Without ``strict``, what is missing on either side is left alone, and ``report`` lists it.
        ``cast`` converts floating-point types; ``resize`` fills tensors of another size, as in ``{"model/embed.weight": "pad"}``.
        """
        state = self._ranks.tree(into)
        names = (only,) if isinstance(only, str) else tuple(only)
        first = self._options.replicas == "first"
        wish = Wish(strict, names, rename, cast, {} if resize is None else resize, first=first)
        self._seen = self.log.read().length
        meant = self._meant(checkpoint)
        self.report = fill(meant, state, wish, self.log)
        if meant.store.url == self.store.url and not self._options.read_only:
            self._loaded = meant
        return state.root if isinstance(state, PlainTree) else into

    def entries(self, checkpoint: Checkpoint | int, *, rank: int | None = None) -> dict[str, Any]:
        """The documents that were saved with it: the shared ones, and those of a rank."""
        return entries_of(self._meant(checkpoint), self._ranks.place[0] if rank is None else rank)

    def _meant(self, checkpoint: Checkpoint | int) -> Checkpoint:
        if isinstance(checkpoint, Checkpoint):
            return checkpoint
        if not isinstance(checkpoint, int) or isinstance(checkpoint, bool):
            kind = type(checkpoint).__name__
            raise UsageError(
                f"a checkpoint or a step is needed, got {kind}",
                hint="checkpoints.latest(), checkpoints.at(100)",
            )
        return self.at(checkpoint)

    def begin(self, tree: Any, *, token: str = "") -> int:
        """Begin this incarnation without loading anything: from here on no earlier one can commit. Its number.

        ``token``: of ranks that can talk to each other. One of them has drawn it for this start, so it counts more than any name.
        """
        if token:
            self._ranks.token, self._ranks.drawn = token, True
        state = self._ranks.joined(tree, self._incarnation)
        self._begin(state.rank, state.ranks)
        assert self._member is not None, "it began"
        assert self._member.incarnation is not None, "a fence has a number"
        return self._member.incarnation

    def resume(
        self,
        into: Any,
        *,
        deadline_s: float | None = None,
        fits: Callable[[Checkpoint], bool] | None = None,
        allow_empty: bool = False,
        **loading: Unpack[LoadKeywords],
    ) -> Checkpoint | None:
        """Begin this incarnation from the newest checkpoint that every rank can load; None if nothing was ever saved.

        From here on no earlier incarnation can commit. Damage that one rank finds moves all of them to the next one; when none is left,
        that is an error (``NothingLoads``), unless ``allow_empty``. ``fits`` leaves checkpoints out; it has to say the same on every rank.
        May be called again, to go back.
        """
        state = self._ranks.joined(into, self._incarnation)
        finisher = self._begin(state.rank, state.ranks)
        assert self._member is not None, "it began"

        def load_it(committed: Committed) -> None:
            candidate = checkpoint_of(committed, self.store)
            if reason := missing_parts(candidate):
                raise CheckpointDamaged(file=self.store.url, reason=reason)
            self.load(candidate, state, **loading)

        limit_s = self._options.deadline_s if deadline_s is None else deadline_s
        if self._options.behind is not None:
            self._bring_back(self._member, limit_s)

        def choose(history: History) -> Committed | None:
            return newest_that(history, self.store, fits)

        agreed = agree(self.log, self._member, load_it, deadline_s=limit_s, choose=choose, first=self._choice)
        self._choice = agreed.choice + 1
        finisher.seen = agreed.seen
        # Whoever resumes will save; memory that the system has not given out before takes far longer than copying to it.
        self.prepare(state)
        if agreed.checkpoint is None:
            if not allow_empty:
                refuse_emptiness(self.log, self._member.incarnation)
            return None
        checkpoint = checkpoint_of(agreed.checkpoint, self.store)
        finisher.parent = (checkpoint.digest, checkpoint.manifest)
        return checkpoint

    def _bring_back(self, member: Member, limit_s: float) -> None:
        """Copy the newest checkpoint of the second place into the first, if that has nothing as new."""
        assert member.incarnation is not None, "it began"
        if self._behind is None:
            # Rank 0 does it; its choice of a checkpoint says that it is done.
            await_choice(self.log, member, self._choice, limit_s)
            return
        here, there = self.latest(allow_empty=True), self._behind.newest()
        if there is not None and (here is None or here.made < there.made):
            events.record("state.bring_back", step=there.step)
            copy(there, self.log, member, self._references)

    def prune(self, keep: Keep | None = None, *, dry_run: bool = False) -> Pruned:
        """Retire what nobody wishes to keep, and delete what nothing refers to."""
        wanted = keep or self.keep
        if wanted is None:
            raise UsageError("nothing says what to keep", hint="give keep=Keep(last=3)")
        return prune(self.log, wanted, references=self._references, dry_run=dry_run)

    @property
    def behind_failures(self) -> Sequence[PenstockError]:
        """What went wrong with copies to the second place."""
        return [] if self._behind is None else list(self._behind.failures)

    def wait(self) -> None:
        """Return when every save has ended; the first error, if one failed and nobody was told."""
        for pending in self._pending:
            pending.ended()
        if self._behind is not None:
            self._behind.wait()
        self._raise_unnoticed()

    def settle(self) -> None:
        """Return when nothing goes on behind training's back any more, pruning included; what failed is not told."""
        self._saver.submit(int).result()

    def give_up(self) -> None:
        """Do not wait for other ranks any more, because one of them is gone: saves that need it fail now, not at their deadline."""
        if self._finisher is not None:
            self._finisher.given_up.set()

    def close(self) -> None:
        """Finish what was begun and give the memory back."""
        self._saver.shutdown(wait=True)
        if self._watch is not None:
            self._watch.stop()
        if self._patrol is not None:
            self._patrol.close()
        if self._behind is not None:
            self._behind.close()
        self._arenas.close()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if kind is None:
            self._raise_unnoticed()
