"""Values on their way from a device to the host, so that looking at one waits for it alone."""

import threading
from collections import deque
from typing import Any

import torch

from penstock.errors import UsageError

#: Pinned elements that are made at once, of a type; and those of a type that are kept for later values.
_SLOTS, _KEPT_MAX = 64, 1024
#: One element of pinned memory and the event behind the copy into it; whoever takes one from here owns it.
_Slot = tuple[torch.Tensor, torch.cuda.Event]
_FREE: dict[tuple[torch.device, torch.dtype], deque[_Slot]] = {}
_MAKING = threading.Lock()


class Readback:
    """One element of a CUDA tensor, copied to pinned memory in the order of the device's work.

    ``Tensor.item`` waits for everything that was launched before it is called, which in a loop is the next step; this waits for what was
    launched before the value was handed over. Memory and event are used again: to make either costs more than the copy.
    """

    def __init__(self, value: torch.Tensor) -> None:
        self._free = _free_slots(value.device, value.dtype)
        self._slot: _Slot | None = self._free.popleft() if self._free else _make(self._free, value)
        self._number: Any = None
        host, arrived = self._slot
        host.copy_(value, non_blocking=True)
        arrived.record(torch.cuda.current_stream(value.device))

    def is_here(self) -> bool:
        """Whether looking at it waits for nothing."""
        return self._slot is None or self._slot[1].query()

    def item(self) -> Any:
        """The value, once it is here."""
        slot = self._slot
        if slot is not None:
            slot[1].synchronize()
            self._number = slot[0].item()
            self._slot = None
            if len(self._free) < _KEPT_MAX:
                self._free.append(slot)
        return self._number


def _free_slots(device: torch.device, dtype: torch.dtype) -> deque[_Slot]:
    return _FREE.setdefault((device, dtype), deque())


def _make(free: deque[_Slot], value: torch.Tensor) -> _Slot:
    """Some at once: pinning takes the driver as long for one element as for many."""
    with _MAKING:
        elements = torch.empty(_SLOTS, dtype=value.dtype, pin_memory=True)
        free.extend((element, torch.cuda.Event()) for element in elements[1:].unbind())
    return elements[0], torch.cuda.Event()


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
