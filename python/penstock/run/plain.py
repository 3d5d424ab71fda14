"""Plain trees as states of a run: nested dicts of arrays in one process. Frameworks of your own begin here."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from penstock.data import Batch, Feed, Lane
from penstock.data.feed.options import BatchKeywords
from penstock.data.feed.prefetch import Prefetch
from penstock.errors import UsageError
from penstock.run.contract import Timer, Trainable
from penstock.state.contract import Copying, Held
from penstock.state.inspect.fingerprint import fingerprint
from penstock.state.tree import as_tree


class PlainState:
    """A nested dict of arrays as the state of a run of one process. The tree itself is filled in place, whatever is loaded."""

    deferred = False
    rank = 0
    ranks = 1

    def __init__(self, root: Any) -> None:
        self.root = root

    def lane_of(self, **wanted: Unpack[BatchKeywords]) -> Lane:
        """All rows."""
        return Lane()

    def batches(self, feed: Feed, **wanted: Unpack[BatchKeywords]) -> Prefetch[Any]:
        """Batches as they are: numpy arrays."""
        options: dict[str, Any] = dict(wanted)
        prefetch = options.pop("prefetch", 2)
        return Prefetch(feed, _same, prefetch=prefetch, options=replace(feed.options, **options))

    def agree(self, values: Sequence[float]) -> list[list[float]]:
        """There is one rank."""
        return [list(values)]

    def share(self, document: bytes) -> bytes:
        """There is one rank."""
        return document

    def seed(self, number: int) -> None:
        """Python's and NumPy's generators are set by the run."""

    def generator(self, number: int) -> np.random.Generator:
        """A generator of NumPy."""
        return np.random.Generator(np.random.Philox(key=number))

    def digest(self) -> bytes:
        """Of all arrays, in the order of their names."""
        return fingerprint(self.held())

    def timer(self) -> Timer | None:
        """The host does the work."""
        return None

    def held(self) -> list[Held]:
        """Every array, as it is now."""
        return as_tree(self.root).held()

    def values(self) -> dict[str, Any]:
        """Everything else, as it is now."""
        return as_tree(self.root).values()

    def load_values(self, values: dict[str, Any]) -> None:
        """Put values where they were."""
        tree = as_tree(self.root)
        tree.load_values(values)
        tree.loaded()

    def loaded(self) -> None:
        """Arrays were filled in place."""

    def entries(self) -> dict[str, Any]:
        """There are none."""
        return {}

    def load_entries(self, entries: dict[str, Any]) -> None:
        """There are none."""

    def on_save(self, copying: Copying) -> None:
        """Nobody here knows when arrays are written to."""
        copying.wait()


def as_trainable(state: Any, ranks: int) -> Trainable:
    """A state that answers a run: itself, or a plain tree in one process."""
    if hasattr(state, "agree") and hasattr(state, "held"):
        known: Trainable = state
        return known
    if ranks > 1:
        raise UsageError(
            f"a plain tree knows nothing of the other ranks, but there are {ranks}",
            hint="give penstock.torch.state(…), penstock.jax.state(…), or an object that has what penstock.run.contract.Trainable says",
        )
    return PlainState(state)


def _same(batch: Batch) -> Batch:
    return batch
