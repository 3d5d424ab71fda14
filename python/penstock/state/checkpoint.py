"""One checkpoint, as far as it is known without reading its tensors."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from penstock.state.log.history import Committed
from penstock.state.log.manifest_copies import get_manifest
from penstock.state.manifest import Manifest
from penstock.store import Store


@dataclass(frozen=True)
class Checkpoint:
    """A committed state. ``manifest`` is read when it is first asked for."""

    step: int
    #: Of its commit in the log.
    number: int
    incarnation: int
    #: Of its manifest.
    digest: str
    bytes: int
    #: Seconds since 1970.
    made: float
    #: Why it was quarantined; empty for a good one.
    damage: str
    metrics: dict[str, float]
    store: Store = field(repr=False, compare=False)

    @cached_property
    def manifest(self) -> Manifest:
        """What it consists of, checked against its digest."""
        return get_manifest(self.store, self.digest)

    def to_json(self) -> dict[str, Any]:
        """The checkpoint as plain values."""
        names = ("step", "number", "incarnation", "digest", "bytes", "made", "damage", "metrics")
        return {name: getattr(self, name) for name in names}


def checkpoint_of(committed: Committed, store: Store) -> Checkpoint:
    """From what stands in the log."""
    commit = committed.commit
    return Checkpoint(
        step=commit.step,
        number=committed.number,
        incarnation=commit.incarnation,
        digest=commit.manifest,
        bytes=commit.bytes,
        made=commit.at,
        damage=committed.damage,
        metrics=dict(commit.metrics),
        store=store,
    )
