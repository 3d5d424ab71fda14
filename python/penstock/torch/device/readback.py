"""Values on their way from a device to the host, so that looking at one waits for it alone."""

from typing import Any

import torch

from penstock.errors import UsageError


class Readback:
    """One element of a CUDA tensor, copied to pinned memory in the order of the device's work.

    ``Tensor.item`` waits for everything that was launched before it is called, which in a loop is the next step; this waits for what was
    launched before the value was handed over.
    """

    def __init__(self, value: torch.Tensor) -> None:
        self._host = torch.empty((), dtype=value.dtype, pin_memory=True)
        self._host.copy_(value, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record(torch.cuda.current_stream(value.device))

    def item(self) -> Any:
        """The value, once it is here."""
        self._arrived.synchronize()
        return self._host.item()


def readback(value: Any) -> Any:
    """Something that has ``item``, or a number: begins to bring a device's value to the host. Spread over ranks, it is put together first."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if hasattr(value, "full_tensor"):
        value = value.full_tensor()
    if value.numel() != 1:
        raise UsageError(
            f"a value to report must have one element, got {value.numel()}", hint="take its mean or its sum"
        )
    # A copy: running sums are set to zero in place after they are reported, and before they are looked at.
    return Readback(value.reshape(())) if value.is_cuda else value.clone()
