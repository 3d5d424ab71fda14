"""Host memory that a CUDA device copies to and from by itself: arenas of the room, pinned in segments.

Pinning 17 GB takes seconds and holds a lock of the driver, so it is done in segments, in a thread of the room, before the
first save needs it. A copy may not cross from one segment into the next, which is why places are asked for here.
"""

import ctypes
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from penstock.torch.device.driver import beside_captures

#: Small enough that training, which needs the same lock of the driver to launch kernels, hardly notices.
SEGMENT_BYTES = 128 << 20
_PORTABLE = 1


class Arena:
    """One pinned arena: its bytes as a tensor, and how far it is pinned."""

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory
        self.address = address_of(memory)
        self.bytes = memory.nbytes
        self.tensor = torch.frombuffer(memory, dtype=torch.uint8)
        #: Addresses of pinned segments, in order.
        self.segments: list[int] = []

    def pin(self) -> None:
        """Pin it, segment by segment. What cannot be pinned still works, at the speed of pageable memory."""
        for start in range(self.address, self.address + self.bytes, SEGMENT_BYTES):
            length = min(SEGMENT_BYTES, self.address + self.bytes - start)
            if problem := _failure(_cudart().cudaHostRegister(start, length, _PORTABLE)):
                warnings.warn(
                    f"pinned {len(self.segments) * SEGMENT_BYTES:,} of {self.bytes:,} bytes for checkpoints: {problem}",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return
            self.segments.append(start)

    @property
    def is_pinned(self) -> bool:
        """Whether all of it is."""
        return len(self.segments) * SEGMENT_BYTES >= self.bytes

    def has(self, address: int, length: int) -> bool:
        """Whether memory lies in it."""
        return self.address <= address and address + length <= self.address + self.bytes

    def begins_segment(self, address: int) -> bool:
        """Whether a segment of it begins there."""
        return (address - self.address) % SEGMENT_BYTES == 0

    def cut(self, first: int, length: int) -> Iterable[tuple[int, int]]:
        """A stretch at the ends of segments: first bytes in it, and lengths."""
        if first % SEGMENT_BYTES + length <= SEGMENT_BYTES:
            return ((0, length),)
        return self._cut(first, length)

    def _cut(self, first: int, length: int) -> Iterator[tuple[int, int]]:
        begin, end = first, first + length
        while begin < end:
            stop = min(end, (begin // SEGMENT_BYTES + 1) * SEGMENT_BYTES)
            yield begin - first, stop - begin
            begin = stop

    def unpin(self) -> None:
        """Give the pages back."""
        while self.segments:
            _failure(_cudart().cudaHostUnregister(self.segments.pop()))


class Arenas:
    """The pinned arenas of this process, by address; devices share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, Arena] = {}

    def pin(self, memory: memoryview) -> None:
        """Pin an arena; a second device that asks for it finds it pinned."""
        with self._lock:
            if address_of(memory) in self._known:
                return
            arena = self._known[address_of(memory)] = Arena(memory)
        with beside_captures():
            arena.pin()

    def unpin(self, memory: memoryview) -> None:
        """Undo it, once, whoever asks."""
        with self._lock:
            arena = self._known.pop(address_of(memory), None)
        if arena is not None:
            with beside_captures():
                arena.unpin()

    def pieces(self, host: memoryview) -> Iterator[tuple[int, torch.Tensor]]:
        """Host memory as tensors that lie in one segment each, with their first byte in it."""
        address, length = address_of(host), host.nbytes
        arena = self._around(address, length)
        if arena is None:
            yield 0, _tensor_at(address, length)
            return
        first = address - arena.address
        for begin, part in arena.cut(first, length):
            yield begin, arena.tensor[first + begin : first + begin + part]

    def places(self, host: memoryview) -> Iterator[tuple[int, int, int]] | None:
        """Pinned host memory as first bytes, addresses and lengths of parts that lie in one segment each; None if it is not pinned."""
        address = address_of(host)
        arena = self.pinned(address, host.nbytes)
        if arena is None:
            return None
        cuts = arena.cut(address - arena.address, host.nbytes)
        return ((begin, address + begin, length) for begin, length in cuts)

    def pinned(self, address: int, length: int) -> Arena | None:
        """The arena around memory, if all of it is pinned."""
        arena = self._around(address, length)
        return arena if arena is not None and arena.is_pinned else None

    def _around(self, address: int, length: int) -> Arena | None:
        return next((arena for arena in tuple(self._known.values()) if arena.has(address, length)), None)


ARENAS = Arenas()


def address_of(memory: memoryview) -> int:
    """Where memory begins. Training waits while this is asked for every tensor, and what may be written to tells it ten times faster."""
    if not memory.readonly and memory.nbytes:
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))
    address: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    return address


def _tensor_at(address: int, length: int) -> torch.Tensor:
    """Memory as a tensor, also when its owner calls it read-only; whoever copies keeps the owner alive."""
    return torch.frombuffer((ctypes.c_uint8 * length).from_address(address), dtype=torch.uint8)


def _cudart() -> Any:
    return torch.cuda.cudart()


def _failure(code: Any) -> str:
    """What a call of the runtime said, if it failed."""
    if code == _cudart().cudaError.success:
        return ""
    said: str = _cudart().cudaGetErrorString(code)
    try:
        # The runtime keeps the error for whoever asks next in this thread; a kernel that is launched now takes it away.
        torch.zeros(1, device="cuda")
    except RuntimeError:
        return said
    return said
