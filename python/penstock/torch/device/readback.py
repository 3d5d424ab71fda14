"""Values on their way from a device to the host, so that looking at one waits for it alone."""

import threading
from collections import deque
from typing import Any

import torch

from penstock.errors import UsageError
from penstock.torch.device.current_stream import CurrentStream
from penstock.torch.device.driver import driver

#: Pinned elements that are made at once, of a type; and those of a type that are kept for later values.
_SLOTS, _KEPT_MAX = 64, 1024
#: One element of pinned memory, its address and the event behind the copy into it; whoever takes one from here owns it.
_Slot = tuple[torch.Tensor, int, torch.cuda.Event]


class _Shelf:
    """Slots for values of one device and type that are free, and the stream that copies are launched on."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.free: deque[_Slot] = deque()
        self.current = CurrentStream(device)
        self._dtype, self._length = dtype, dtype.itemsize
        self._driver = driver()

    def slot(self) -> _Slot:
        """A free one."""
        try:
            return self.free.popleft()
        except IndexError:
            return self._make()

    def copy(self, value: torch.Tensor, address: int) -> bool:
        """Launch a copy through the driver, which takes a quarter of PyTorch's time; not where PyTorch knows more about the value than its address."""
        if self._driver is None or type(value) is not torch.Tensor or value.is_conj() or value.is_neg():
            return False
        # A thread that has launched nothing yet has no device; PyTorch gives it one.
        return self.current.is_current_device() and self._driver.try_to_host(
            address, value.data_ptr(), self._length, self.current.handle
        )

    def _make(self) -> _Slot:
        """Some at once: pinning takes the driver as long for one element as for many."""
        with _MAKING:
            elements = torch.empty(_SLOTS, dtype=self._dtype, pin_memory=True)
            slots = [(element, element.data_ptr(), torch.cuda.Event()) for element in elements.unbind()]
            self.free.extend(slots[1:])
        return slots[0]


_SHELVES: dict[tuple[torch.device, torch.dtype], _Shelf] = {}
_MAKING = threading.Lock()


class Readback:
    """One element of a CUDA tensor, copied to pinned memory in the order of the device's work.

    ``Tensor.item`` waits for everything that was launched before it is called, which in a loop is the next step; this waits for what was
    launched before the value was handed over. Memory and event are used again: to make either costs more than the copy.
    """

    def __init__(self, value: torch.Tensor) -> None:
        key = value.device, value.dtype
        shelf = _SHELVES.get(key) or _SHELVES.setdefault(key, _Shelf(*key))
        self._free = shelf.free
        self._number: Any = None
        self._slot: _Slot | None = shelf.slot()
        host, address, arrived = self._slot
        stream = shelf.current.get()
        if not shelf.copy(value, address):
            host.copy_(value.detach().reshape(()), non_blocking=True)
        arrived.record(stream)

    def is_here(self) -> bool:
        """Whether looking at it waits for nothing."""
        return self._slot is None or self._slot[2].query()

    def item(self) -> Any:
        """The value, once it is here."""
        slot = self._slot
        if slot is not None:
            slot[2].synchronize()
            self._number = slot[0].item()
            self._slot = None
            if len(self._free) < _KEPT_MAX:
                self._free.append(slot)
        return self._number


def readback(value: Any) -> Any:
    """Something that has ``item``, or a number: begins to bring a device's value to the host. Spread over ranks, it is put together first."""
    if not isinstance(value, torch.Tensor):
        return value
    if type(value) is not torch.Tensor and (whole := getattr(value.detach(), "full_tensor", None)):
        value = whole()
    if value.numel() != 1:
        raise UsageError(
            f"a value to report must have one element, got {value.numel()}", hint="take its mean or its sum"
        )
    # A copy: running sums are set to zero in place after they are reported, and before they are looked at.
    return Readback(value) if value.is_cuda else value.detach().clone()
