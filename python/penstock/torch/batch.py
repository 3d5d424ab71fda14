"""A batch as tensors: a plain dict for whoever wants one, with the step, the digest and the origins still in reach.

Batches of records may hold lists beside tensors: text, bytes, and arrays of different shapes have no tensor.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch

from penstock.data import Batch as HostBatch
from penstock.data import Origin
from penstock.errors import UsageError


class Batch(dict[str, Any]):
    """What a lane gets for a step, by field.

    Made from a bare mapping, as frameworks do when they rebuild what they are given, it is only a dict.
    """

    def __init__(self, tensors: Mapping[str, Any], *, of: HostBatch | None = None) -> None:
        super().__init__(tensors)
        self._of = of
        #: Makes the stream that the caller works on wait for the copy; None when there is nothing to wait for.
        self._arrive: Callable[[], None] | None = None

    @property
    def step(self) -> int:
        """The step of the recipe; ``loader.state_dict(after=batch.step)`` resumes after it."""
        return self._host().step

    @property
    def digest(self) -> str:
        """A hash of positions, tokens and boundaries, the same in every framework; see ``penstock.data.join``."""
        return self._host().digest

    def origin(self, row: int) -> list[Origin]:
        """What a row is made of, in order: version, shard, sample, bytes and tokens."""
        return self._host().origin(row)

    def to(self, device: torch.device | str | int, *, non_blocking: bool = False) -> Self:
        """The batch on another device, still with its step (Accelerate and Lightning call this)."""
        moved = {
            name: value.to(device, non_blocking=non_blocking) if isinstance(value, torch.Tensor) else value
            for name, value in self.items()
        }
        return type(self)(moved, of=self._of)

    def __reduce__(self) -> tuple[Any, ...]:
        # The way back to the feed's memory does not travel between processes; the tensors do.
        return type(self), (dict(self),)

    def __repr__(self) -> str:
        step = "rebuilt" if self._of is None else f"step {self._of.step}"
        shown = ", ".join(f"{name} {_shown(value)}" for name, value in self.items())
        return f"<Batch {step}, {shown}>"

    def _host(self) -> HostBatch:
        if self._of is None:
            raise UsageError(
                "this batch was rebuilt from bare tensors, so its step and origins are not known",
                hint="take them from the batch that the loader gave, before a framework rebuilds it",
            )
        return self._of


def _shown(value: Any) -> str:
    return (
        f"{tuple(value.shape)} {value.dtype}" if isinstance(value, torch.Tensor) else f"list of {len(value)}"
    )
