"""One reader per host: processes that read the same lane make every batch once and look at it in the same memory.

They meet at a name that is made of everything that decides the bits of a batch: the plan, the skips, the lane, and the build of
Penstock. So those who meet would make the same bytes, and whoever has not what another needs changes nothing but time. Rust does the
meeting (``crates/penstock-data/src/feed/share.rs``); here is the name, and how steps that Python finishes are shared.
"""

import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import _rust
from penstock.data.feed.batch import Batch, Finisher
from penstock.data.feed.batch_wire import receive, ship
from penstock.data.feed.columns_wire import NotPackable
from penstock.data.feed.lane import Lane
from penstock.errors import BatchDamaged

if TYPE_CHECKING:
    from penstock.data.plan.plan import Plan

_log = logging.getLogger("penstock.data")
#: Past every step, so that a digest up to here covers all of a plan.
_LAST_STEP = 1 << 62


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a process is for others that read the same lane, and how many steps it made and took since it was opened."""

    #: ``reader`` (others come to it), ``follower`` (it goes to another), ``alone`` (there is trouble), ``looking``.
    standing: str
    #: Steps made here for everybody, made by others, and made here for nobody else because others could not be asked.
    made: int
    taken: int
    alone: int
    #: How often another reader had to be found.
    moves: int
    #: Of a reader: processes that take part, and bytes that wait for them.
    members: int
    kept_bytes: int
    #: Why it read alone, the last time that it did.
    trouble: str | None

    @classmethod
    def of(cls, counts: tuple[Any, ...] | None) -> "Sharing | None":
        """What Rust tells, with names; None where nothing is shared."""
        return None if counts is None else cls(*counts)


def key_of(plan: "Plan", lane: Lane) -> str:
    """The name under which processes that would make the same batches meet."""
    document = plan.recipe.document(plan.versions)
    parts = (document, plan.digest(_LAST_STEP), plan.skips.to_json(), [lane.number, lane.of], _build())
    return _rust.digest(msgspec.json.encode(parts, order="deterministic"))


@cache
def _build() -> str:
    """The identity of the code that makes batches."""
    code = _rust.__file__
    assert code is not None
    return f"{_rust.__version__} {_rust.digest_file(Path(code))}"


def warn_if_alone(sharing: Sharing | None) -> None:
    """Say that a feed that was to be shared is not, and why. Batches are the same."""
    if sharing is not None and sharing.standing == "alone":
        _log.warning("batches are read alone, though they were to be shared: %s", sharing.trouble)


class SharedFinish(Finisher):
    """Finishes each step once for all processes of the lane. Safe to use from any thread."""

    def __init__(self, plan: "Plan", finish: Finisher, *, key: str, budget_bytes: int) -> None:
        self._plan = plan
        self._finish = finish
        self.exchange = _rust.Exchange(key, budget_bytes)

    def __call__(self, rust_batch: _rust.FeedBatch) -> Batch:
        """The batch of a step, finished here or by another."""
        asked = self.exchange.ask(rust_batch.step)
        if isinstance(asked, _rust.SharedBytes):
            batch = self._received(asked)
            if batch is not None and batch.step == rust_batch.step:
                return batch
        finished = self._finish(rust_batch)
        if not isinstance(asked, _rust.StepClaim):
            return finished
        try:
            shared = asked.put(ship(finished))
        except NotPackable:
            # Values that cannot travel exactly are made by everybody; the claim goes with its last reference.
            return finished
        return finished if shared is None else self._received(shared) or finished

    def _received(self, shared: _rust.SharedBytes) -> Batch | None:
        try:
            return receive(shared, self._plan)
        except BatchDamaged as problem:
            _log.warning("a step of another process is made again: %s", problem)
            return None

    def map_s(self) -> float:
        """Seconds that all threads of this process have spent in maps of the recipe."""
        return self._finish.map_s()

    def sharing(self) -> Sharing | None:
        """What this process is for the others, and counts since opening."""
        return Sharing.of(self.exchange.told())

    def close(self) -> None:
        """Take part no more."""
        self.exchange.close()
