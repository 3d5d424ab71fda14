"""Loading around damage: where a piece is damaged and a second copy of it exists, the load is made again with that one."""

import logging
from typing import Any

from penstock import events
from penstock.errors import CheckpointDamaged
from penstock.state.contract import Tree
from penstock.state.loading import load
from penstock.state.manifest import Manifest
from penstock.state.selection import Wish
from penstock.state.spares import around
from penstock.store import Store

#: Damaged pieces are replaced one by one up to here, and then all of their file.
_ONE_BY_ONE = 8
_LOG = logging.getLogger("penstock.state")


def load_around(manifest: Manifest, store: Store, tree: Tree, wish: Wish) -> Any:
    """Load; from second copies where the first ones are damaged. What ``load`` says, or the damage that no copy makes up for."""
    for round_ in range(_ONE_BY_ONE + 2 * len(manifest.files) + 1):
        try:
            return load(manifest, store, tree, wish)
        except CheckpointDamaged as problem:
            one = problem.tensor if round_ < _ONE_BY_ONE else ""
            other = around(manifest, problem.file, one)
            if other is None:
                raise
            events.record("state.fallback", file=problem.file, tensor=problem.tensor, reason=problem.reason)
            _LOG.warning("%s; its second copy is loaded instead", problem)
            manifest = other
    raise AssertionError("every round takes a file, or a tensor of one, out")
