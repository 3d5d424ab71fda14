"""A batch as tensors: a plain dict for whoever wants one, with the step, the digest and the origins still in reach.

Batches of records may hold lists beside tensors: text, bytes, and arrays of different shapes have no tensor.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch

from penstock.data import Batch as HostBatch
from penstock.data.feed.framework_batch import FrameworkBatch


class Batch(FrameworkBatch):
    """What a lane gets for a step, by field."""

    def __init__(self, tensors: Mapping[str, Any], *, of: HostBatch | None = None) -> None:
        super().__init__(tensors, of=of)
        #: Makes the stream that the caller works on wait for the copy; None when there is nothing to wait for.
        self._arrive: Callable[[], None] | None = None

    def to(self, device: torch.device | str | int, *, non_blocking: bool = False) -> Self:
        """The batch on another device, still with its step (Accelerate and Lightning call this)."""
        moved = {
            name: value.to(device, non_blocking=non_blocking) if isinstance(value, torch.Tensor) else value
            for name, value in self.items()
        }
        return type(self)(moved, of=self._of)
