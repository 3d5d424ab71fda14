"""How a training loop wants its batches, as keywords that runs hand on to frameworks."""

from collections.abc import Sequence
from typing import Any, TypedDict


class BatchKeywords(TypedDict, total=False):
    """How batches are wanted: what ``Run.steps`` hands to the state. Each framework knows some of them and refuses the others."""

    #: Names of columns, or names with types.
    fields: Any
    #: Batches that are made ready before they are asked for.
    prefetch: int
    threads: int
    #: With torch: where tensors are wanted.
    device: Any
    #: With JAX: over which devices, and along which of their axes, rows are divided.
    mesh: Any
    axis: str | Sequence[str]
