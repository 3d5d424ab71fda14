"""What a run asks of a state, beside what checkpoints ask of it: its lane, its batches, its ranks, its generators, its digest.

``penstock.torch.state`` and ``penstock.jax.state`` answer all of it. A plain tree of arrays is given answers by ``plain``.
The run itself knows no framework.
"""

from collections.abc import Sequence
from typing import Any, Protocol, Unpack

from penstock.data import Feed, Lane
from penstock.data.feed.options import BatchKeywords
from penstock.data.feed.prefetch import Prefetch
from penstock.state.contract import Tree


class Timer(Protocol):
    """Measures on the device what the host only launches."""

    def begin(self, name: str, step: int) -> None:
        """Something begins, in the order of the device's work."""

    def end(self, name: str) -> None:
        """It ends."""

    def measured(self) -> list[tuple[str, int, float]]:
        """Name, step and seconds of what is over by now. Never waits."""


class Trainable(Tree, Protocol):
    """A state that can be trained by a run."""

    #: Whether values that a step makes are ready only later, so that looking at them at once would hold the device up.
    deferred: bool

    def lane_of(self, **wanted: Unpack[BatchKeywords]) -> Lane:
        """Which rows this rank trains on."""

    def batches(self, feed: Feed, **wanted: Unpack[BatchKeywords]) -> Prefetch[Any]:
        """The feed's batches, as the framework wants them."""

    def agree(self, values: Sequence[float]) -> list[list[float]]:
        """The values of every rank, in the order of ranks; the same everywhere. All ranks call it."""

    def share(self, document: bytes) -> bytes:
        """What rank 0 has given, on every rank. All ranks call it."""

    def seed(self, number: int) -> None:
        """Set the framework's global generators."""

    def generator(self, number: int) -> Any:
        """A generator of the framework's own kind."""

    def digest(self) -> bytes:
        """16 bytes that follow from every tensor that this rank holds."""

    def timer(self) -> Timer | None:
        """None where the host does the work itself."""
