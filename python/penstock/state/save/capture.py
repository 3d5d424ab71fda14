"""Capturing: copy now, everything else behind training's back.

``capture`` returns when the copies are under way or done; a thread of its own (``durable``) then hashes and writes what this rank holds, puts
its part, and (on rank 0) waits for the others and commits. What goes wrong there is kept by the ``Pending`` that was returned,
and is never lost: it is raised by ``wait``, and by the next save if nobody waited, unless the policy is to go on.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, cast

import msgspec

from penstock.errors import SaveFailed, UsageError
from penstock.state.checkpoint import Checkpoint
from penstock.state.contract import ITEM_BYTES, Copy, Copying, Held, Mover, Sample, Sampler, Tree
from penstock.state.manifest import chunk_bytes_for
from penstock.state.ranks.division import Division
from penstock.state.ranks.holdings import Spot, spot_of
from penstock.state.ranks.replicas import Share
from penstock.state.ranks.witnesses import Seen, hashes_of, sample_of
from penstock.state.save.arenas import Arena, Arenas
from penstock.state.save.parts import Part
from penstock.state.save.stowage import Slot, Stowage
from penstock.state.save.write import Captured, Written, joined
from penstock.state.tree import to_json


class Copies:
    """All copies of one capture, whatever moves them."""

    def __init__(self, under_way: list[Copying]) -> None:
        self._under_way = under_way

    def guard(self) -> None:
        """Let nothing overtake them."""
        for copying in self._under_way:
            copying.guard()

    def wait(self) -> None:
        """Return when all have arrived."""
        for copying in self._under_way:
            copying.wait()


@dataclass(frozen=True)
class Taken:
    """A wave of a capture in an arena; the copies may still be under way. What follows from it is worked out behind training's back."""

    held: Sequence[Held]
    wave: Stowage
    arena: Arena
    copies: Copies
    #: Samples of large replicas.
    samples: list[Sample]

    @cached_property
    def captured(self) -> list[Captured]:
        """What this rank writes."""
        return [self._captured(slot) for slot in self.wave.shares]

    @cached_property
    def witnesses(self) -> list[Captured]:
        """Small replicas, as a whole, whether or not this rank writes them."""
        others = [self._captured(slot) for slot in self.wave.whole]
        return [*others, *(self.captured[at] for at in self.wave.written)]

    def _captured(self, slot: Slot) -> Captured:
        return Captured(Share(self.held[slot.index], slot.box, slot.start), self.arena.memory, slot.at)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a save is made."""

    step: int
    chunk_bytes: int
    #: Who writes what; None where there is one rank.
    division: Division | None
    #: Of large replicas that were hashed while training waited.
    hashes: dict[Spot, str]
    #: Names of tensors that every rank keeps to itself (``Held.per_rank``).
    per_rank: frozenset[str]


@dataclass(frozen=True, slots=True)
class Capture:
    """A state as it was at a step."""

    plan: Plan
    rank: int
    ranks: int
    taken: Taken
    values: dict[str, Any]
    entries: dict[str, Any]
    #: What did not fit into memory together with the rest, and is written already.
    earlier: list[Written]

    @property
    def step(self) -> int:
        """Of the state."""
        return self.plan.step

    @property
    def bytes(self) -> int:
        """Bytes that this rank holds captured."""
        return sum(captured.share.bytes for captured in self.taken.captured)

    def checks(self) -> dict[str, str]:
        """What this rank says of the contents of its replicas."""
        if self.plan.division is None:
            return {}
        whole = {spot_of(witness.share.held): witness.memory for witness in self.taken.witnesses}
        samples = {spot_of(sample.held): sample.host for sample in self.taken.samples}
        return Seen({**whole, **samples}, self.plan.hashes).checks(self.plan.division)

    def shares(self, apart: frozenset[str]) -> list[Captured]:
        """What this rank writes, with its own replicas of names that ranks keep apart."""
        own = self.replicas(apart)
        spots = {spot_of(replica.share.held) for replica in own}
        return [
            *(captured for captured in self.taken.captured if spot_of(captured.share.held) not in spots),
            *own,
        ]

    def replicas(self, names: frozenset[str]) -> list[Captured]:
        """What this rank itself holds of replicas of some names."""
        return [witness for witness in self.taken.witnesses if witness.share.held.name in names]

    def part(self, written: "list[tuple[Written, frozenset[str]]]", checks: dict[str, str]) -> Part:
        """The document of what this rank wrote; with each writing, names of replicas in it that ranks keep apart."""
        lone, seen = self.plan.per_rank, {witness.share.held.name for witness in self.taken.witnesses}
        rounds = [(writing, lone) for writing in self.earlier]
        rounds += [(writing, lone | (apart & seen)) for writing, apart in written]
        divided = joined([writing.without(own) for writing, own in rounds])
        kept = joined([writing.only(own) for writing, own in rounds])
        division = "" if self.plan.division is None else self.plan.division.id
        return Part(
            self.rank,
            divided.files,
            divided.tensors,
            self.values,
            self.entries,
            kept.tensors,
            division,
            checks,
        )


def numbers_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as plain numbers, looked at now: what is no number is told to the caller and not to a thread behind its back."""
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[str(name)] = float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, OverflowError, RuntimeError) as reason:
            raise UsageError(
                f"the metric {name!r} is {type(value).__name__}, not a number: {reason}",
                hint="give numbers, or tensors with one element",
            ) from reason
    return numbers


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without the garbage collector, which looks at every object of the process and may take longer than the capture."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Pending:
    """A save that continues in the background."""

    def __init__(self, step: int, copies: Copies, blocked_s: float) -> None:
        self.step = step
        #: How long the caller was held up.
        self.blocked_s = blocked_s
        #: From the call of ``save`` until the checkpoint existed; 0 before that.
        self.durable_s = 0.0
        self.bytes_written = 0
        #: Names of what ranks keep to themselves, on the rank that commits.
        self.kept_apart: list[str] = []
        self._copies = copies
        self._future: Future[Checkpoint] = Future()
        #: Whether somebody was told how it ended.
        self.noticed = False

    def guard(self) -> None:
        """Call before writing to the tensors by other means than the optimizer: they are not overtaken after this."""
        self._copies.guard()

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._future.done()

    def ended(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended, well or not; whether it has."""
        futures.wait([self._future], timeout_s)
        return self._future.done()

    @property
    def error(self) -> BaseException | None:
        """Why it failed, if it has."""
        return self._future.exception() if self._future.done() else None

    def settle(self, checkpoint: Checkpoint) -> None:
        """It exists."""
        self._future.set_result(checkpoint)

    def fail(self, problem: BaseException) -> None:
        """It will not exist."""
        self._future.set_exception(problem)

    def wait(self, timeout_s: float | None = None) -> Checkpoint:
        """The checkpoint, once it exists; or the error."""
        try:
            checkpoint = self._future.result(timeout_s)
        except TimeoutError as reason:
            if self._future.done():
                raise
            raise SaveFailed(step=self.step, reason=f"it is not done after {timeout_s} s") from reason
        except BaseException:
            self.noticed = True
            raise
        self.noticed = True
        return checkpoint


def take(step: int, held: Sequence[Held], wave: Stowage, arenas: Arenas, *, deadline_s: float) -> Taken:
    """Begin to copy shares, and what is looked at of replicas, into an arena, as soon as one is free."""
    movers = movers_of(held)
    arena = arenas.take(wave.bytes, movers, step=step, deadline_s=deadline_s)
    memory = arena.memory
    try:
        copies: dict[int, list[Copy]] = {id(mover): [] for mover in movers}
        for slot in (*wave.shares, *wave.whole):
            if slot.bytes:
                tensor = held[slot.index]
                copies[id(tensor.mover)].append(
                    Copy(tensor, slot.start, memory[slot.at : slot.at + slot.bytes])
                )
        samples = [sample_of(held[s.index], memory[s.at : s.at + s.bytes]) for s in wave.samples]
        under_way: list[Copying] = []
        for mover in movers:
            # Samples are small and go first, so that nobody waits for the rest because of them.
            if mine := [sample for sample in samples if sample.held.mover is mover]:
                under_way.append(cast(Sampler, mover).sample(mine))
            if copies[id(mover)]:
                under_way.append(mover.take(copies[id(mover)]))
        return Taken(held, wave, arena, Copies(under_way), samples)
    except BaseException:
        arenas.give(arena)
        raise


def movers_of(held: Sequence[Held]) -> list[Mover]:
    """Everybody who has to move something."""
    return list({id(tensor.mover): tensor.mover for tensor in held}.values())


def capture(tree: Tree, entries: dict[str, Any], plan: Plan, taken: Taken, earlier: list[Written]) -> Capture:
    """Everything else of a state, beside the tensors that were taken; ``earlier`` is what was written before."""
    values = msgspec.json.decode(msgspec.json.encode(tree.values()))
    document = {name: to_json(name, value) for name, value in {**tree.entries(), **entries}.items()}
    return Capture(plan, tree.rank, tree.ranks, taken, values, document, earlier)


def plan_of(step: int, held: Sequence[Held], division: Division | None, wave: Stowage) -> Plan:
    """How a save is made. With ``replicas="check"`` large replicas are hashed here."""
    per_rank = frozenset(tensor.name for tensor in held if tensor.per_rank)
    if division is None:
        whole = {tensor.name: prod(tensor.shape) * ITEM_BYTES[tensor.dtype] for tensor in held}
        return Plan(step, chunk_bytes_for(sum(whole.values())), None, {}, per_rank)
    large = [held[slot.index] for slot in wave.samples] if division.mode == "check" else []
    return Plan(step, division.chunk_bytes, division, hashes_of(large), per_rank)
