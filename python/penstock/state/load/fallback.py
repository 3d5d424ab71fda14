"""Filling a tree from a checkpoint, around damage: where a piece is damaged and a second copy exists, that one is loaded.

A tree that a failed load leaves filled in part is remembered (``spoilage``) and never saved.
"""

import logging
from typing import Any

from penstock import events
from penstock.errors import CheckpointDamaged, LayoutChanged, SelectionEmpty, TreeMismatch, UsageError
from penstock.state.checkpoint import Checkpoint
from penstock.state.contract import Tree
from penstock.state.load.fit import LoadReport
from penstock.state.load.load import load
from penstock.state.load.lookup import retired_or
from penstock.state.load.selection import GENERATORS, Wish
from penstock.state.load.spoilage import heal, spoil
from penstock.state.log.log import Log
from penstock.state.manifest import Manifest
from penstock.state.save.duplicates import around
from penstock.state.tree import PlainTree, from_json
from penstock.store import Store

#: Damaged pieces are replaced one by one up to here, and then all of their file.
_ONE_BY_ONE = 8
#: What ``load`` says before it writes anything.
_UNTOUCHED = (LayoutChanged, SelectionEmpty, TreeMismatch, UsageError)
_LOG = logging.getLogger("penstock.state")


def fill(checkpoint: Checkpoint, state: Tree, wish: Wish, log: Log) -> LoadReport:
    """Load a checkpoint into a tree, with the entries of its rank. A checkpoint that was retired meanwhile is said to be that."""
    tree = state.root if isinstance(state, PlainTree) else state
    try:
        manifest = checkpoint.manifest
    except CheckpointDamaged as problem:
        raise retired_or(problem, log, checkpoint) from problem
    try:
        report = _load_around(manifest, checkpoint.store, state, wish)
        if not wish.only or wish.chosen(GENERATORS):
            state.load_entries(entries_of(checkpoint, state.rank))
    except _UNTOUCHED:
        raise
    except BaseException as problem:
        spoil(tree, checkpoint.step, wish.only, problem)
        if isinstance(problem, CheckpointDamaged):
            raise retired_or(problem, log, checkpoint) from problem
        raise
    heal(tree, wish.only)
    return report


def entries_of(checkpoint: Checkpoint, rank: int) -> dict[str, Any]:
    """The documents that were saved with a checkpoint: the shared ones, and those of a rank."""
    return {name: from_json(value) for name, value in checkpoint.manifest.entries.of(rank).items()}


def _load_around(manifest: Manifest, store: Store, tree: Tree, wish: Wish) -> LoadReport:
    """Load; from second copies where the first ones are damaged. The damage, where no copy makes up for it."""
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
