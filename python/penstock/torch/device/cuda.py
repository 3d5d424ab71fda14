"""Bytes between CUDA tensors and host memory, beside training.

Copies run on a stream of their own. Taking: that stream first waits for what the caller has launched, then copies while
the next forward and backward run (through a copy on the device where that has room); ``guard`` makes the caller's stream wait for the copies, never the Python thread. Tensors that may
change earlier are cloned on the device first. Putting works the same way round. A save or load remembers the stream it was
called on, because copies may be begun by other threads, whose current stream is another.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from weakref import ref

import torch

from penstock.state.contract import Copy, Copying, Sample
from penstock.torch.device.driver import beside_captures, driver
from penstock.torch.device.mover import TORCH_TYPES, as_bytes, fill, picked, strips
from penstock.torch.device.pinned_memory import ARENAS, address_of
from penstock.torch.device.snapshot import Snapshot, Stretch


class OnDevice(NamedTuple):
    """Memory of a device, and the stream on which its owner works."""

    #: Gives the tensor; a weak reference where its owner is known to live as long as this is used.
    get: Callable[[], torch.Tensor | None]
    stream: torch.cuda.Stream
    address: int
    is_contiguous: bool
    dtype: torch.dtype

    @classmethod
    def of(
        cls, tensor: torch.Tensor, stream: torch.cuda.Stream, owner: "ref[torch.Tensor] | None" = None
    ) -> "OnDevice":
        """Memory as a tensor shows it. With an owner, which is all of it, it is not kept alive."""
        get = (lambda: tensor) if owner is None else owner
        return cls(get, stream, tensor.data_ptr(), tensor.is_contiguous(), tensor.dtype)

    @property
    def tensor(self) -> torch.Tensor:
        """The memory, without its history."""
        tensor = self.get()
        assert tensor is not None, "a save uses what is held while the program holds it too"
        return tensor.detach()

    def is_stored_as(self, dtype: str) -> bool:
        """Whether its bytes, as they lie there, are those of the type that is stored."""
        return self.is_contiguous and self.dtype == TORCH_TYPES[dtype]


class CudaCopying:
    """Copies under way on the side stream."""

    def __init__(
        self,
        device: torch.device,
        event: torch.cuda.Event,
        kept: list[object],
        taken: torch.cuda.Event | None = None,
    ) -> None:
        self._device = device
        self._event = event
        #: When the tensors may be written to, if that is before the copies are done.
        self._taken = event if taken is None else taken
        #: Tensors and host memory that must outlive the copies.
        self._kept = kept

    def guard(self) -> None:
        """Work that is launched from now on waits for the copies, on the device."""
        if not self._taken.query():
            torch.cuda.current_stream(self._device).wait_event(self._taken)

    def wait(self) -> None:
        """Sleep until the copies are done."""
        with beside_captures():
            self._event.synchronize()
        self._kept.clear()


class CudaMover:
    """Moves bytes of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: torch.cuda.Stream | None = None
        launch = driver()
        self._snapshot = None if launch is None else Snapshot(device, launch)

    def prepare(self, arena: memoryview) -> None:
        """Pin the arena."""
        # A thread begins on device 0; without this it would make a context there.
        with torch.cuda.device(self.device):
            ARENAS.pin(arena)

    def release(self, arena: memoryview) -> None:
        """Unpin it."""
        with torch.cuda.device(self.device):
            ARENAS.unpin(arena)
            if self._snapshot is not None:
                self._snapshot.release()

    def take(self, copies: list[Copy]) -> Copying:
        """Launch copies from the device; the tensors may be used at once, and written to after ``guard``."""
        with torch.cuda.device(self.device), torch.no_grad():
            if (through := self._through_snapshot(copies)) is not None:
                return through
            sources = _steady(copies)
            side = self._after(copies)
            with torch.cuda.stream(side):
                for copy in copies:
                    self._out(copy, sources[id(copy.held)], side)
            return self._copying(side, copies, list(sources.values()))

    def _through_snapshot(self, copies: list[Copy]) -> Copying | None:
        """Copy on the device first, where everything lies ready for that and there is ample room."""
        if self._snapshot is None or len({copy.held.memory.stream for copy in copies}) != 1:
            return None
        stretches = _stretches(copies)
        if not stretches or not self._snapshot.has_room(sum(stretch.length for stretch in stretches)):
            return None
        side = self._after(copies)
        taken = self._snapshot.copy(stretches, copies[0].held.memory.stream, side)
        event = torch.cuda.Event(blocking=True)
        event.record(side)
        return CudaCopying(
            self.device, event, [*copies, *(copy.held.memory.tensor for copy in copies)], taken
        )

    def sample(self, samples: list[Sample]) -> Copying:
        """Launch copies of samples, under the same rules as ``take``."""
        with torch.cuda.device(self.device), torch.no_grad():
            # What may change before the copies are guarded is gathered now, in the order of its owner's work.
            addresses = [_direct_address(sample) for sample in samples]
            gathered = [
                None if address else _gathered(sample)
                for sample, address in zip(samples, addresses, strict=True)
            ]
            side = self._after(samples)
            with torch.cuda.stream(side):
                for sample, address, picks in zip(samples, addresses, gathered, strict=True):
                    self._out_rows(sample, address, picks, side)
            tensors = [sample.held.memory.tensor for sample in samples]
            return self._copying(
                side, samples, [*tensors, *(picks for picks in gathered if picks is not None)]
            )

    def put(self, copies: list[Copy]) -> Copying:
        """Launch copies to the device; the host memory must stay until ``wait``, the tensors are ready after ``guard``."""
        with torch.cuda.device(self.device), torch.no_grad():
            side = self._after(copies)
            with torch.cuda.stream(side):
                for copy in copies:
                    self._in(copy)
            targets = {id(copy.held): copy.held.memory.tensor for copy in copies}
            return self._copying(side, copies, list(targets.values()))

    def _after(self, copies: Sequence[Copy | Sample]) -> torch.cuda.Stream:
        """The side stream, which goes on when the work that was launched before is done."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)
        for stream in {copy.held.memory.stream for copy in copies}:
            self._stream.wait_stream(stream)
        return self._stream

    def _copying(
        self, side: torch.cuda.Stream, copies: Sequence[Copy | Sample], tensors: list[torch.Tensor]
    ) -> CudaCopying:
        for tensor in tensors:
            # Should its owner let go of it, the allocator must not give its memory away before the copy is done.
            tensor.record_stream(side)
        event = torch.cuda.Event(blocking=True)
        event.record(side)
        return CudaCopying(self.device, event, [*copies, *tensors])

    def _out(self, copy: Copy, source: torch.Tensor, side: torch.cuda.Stream) -> None:
        if not copy.host.nbytes:
            return
        launch = driver()
        places = ARENAS.places(copy.host) if launch is not None and _is_plain(copy, source) else None
        if launch is not None and places is not None:
            base, handle = source.data_ptr() + copy.start, side.cuda_stream
            for begin, address, length in places:
                launch.to_host(address, base + begin, length, handle)
            return
        for first, part in _stored(copy, source):
            for begin, host in ARENAS.pieces(copy.host[first : first + part.numel()]):
                host.copy_(part[begin : begin + host.numel()], non_blocking=True)

    def _out_rows(
        self, sample: Sample, address: int, gathered: torch.Tensor | None, side: torch.cuda.Stream
    ) -> None:
        if gathered is None:
            launch = driver()
            assert launch is not None, "a sample goes directly only through the driver"
            form = (sample.rows, sample.width, sample.pitch)
            launch.rows_to_host(address, sample.held.memory.address, form, side.cuda_stream)
            return
        for begin, room in ARENAS.pieces(sample.host):
            room.copy_(gathered[begin : begin + room.numel()], non_blocking=True)

    def _in(self, copy: Copy) -> None:
        tensor = copy.held.memory.tensor
        if not copy.host.nbytes:
            return
        if _is_plain(copy, tensor):
            target = as_bytes(tensor)[copy.start : copy.start + copy.host.nbytes]
            for begin, host in ARENAS.pieces(copy.host):
                target[begin : begin + host.numel()].copy_(host, non_blocking=True)
            return
        for first, window in strips(copy, tensor):
            landed = torch.empty(window.shape, dtype=TORCH_TYPES[copy.held.dtype], device=self.device)
            raw = as_bytes(landed)
            for begin, host in ARENAS.pieces(copy.host[first : first + raw.numel()]):
                raw[begin : begin + host.numel()].copy_(host, non_blocking=True)
            fill(copy.held.name, window, landed)


def cuda_mover(device: torch.device) -> CudaMover:
    """The mover of a device."""
    if device not in _MOVERS:
        _MOVERS[device] = CudaMover(device)
    return _MOVERS[device]


_MOVERS: dict[torch.device, CudaMover] = {}


def _stretches(copies: list[Copy]) -> list[Stretch] | None:
    """All of them as addresses; None if one is not stored as it is, or not into pinned memory."""
    stretches: list[Stretch] = []
    arena = None
    for copy in copies:
        memory: OnDevice = copy.held.memory
        length = copy.host.nbytes
        if not length:
            continue
        if not memory.is_stored_as(copy.held.dtype):
            return None
        host, source = address_of(copy.host), memory.address + copy.start
        if arena is None or not arena.has(host, length):
            arena = ARENAS.pinned(host, length)
            if arena is None:
                return None
        for begin, part in arena.cut(host - arena.address, length):
            stretches.append(Stretch(source + begin, host + begin, part, arena.begins_segment(host + begin)))
    return stretches


def _steady(copies: list[Copy]) -> dict[int, torch.Tensor]:
    """What is copied, by the identity of what is held: the tensor, or a clone made in the order of its owner's work."""
    sources: dict[int, torch.Tensor] = {}
    for copy in copies:
        memory: OnDevice = copy.held.memory
        if id(copy.held) in sources:
            continue
        if not copy.held.restless:
            sources[id(copy.held)] = memory.tensor
            continue
        with torch.cuda.stream(memory.stream):
            sources[id(copy.held)] = memory.tensor.clone()
    return sources


def _stored(copy: Copy, source: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """The bytes to be stored, on the device, each with its first byte in the host memory."""
    if _is_plain(copy, source):
        yield 0, as_bytes(source)[copy.start : copy.start + copy.host.nbytes]
        return
    for first, window in strips(copy, source):
        yield first, as_bytes(window.to(TORCH_TYPES[copy.held.dtype]))


def _gathered(sample: Sample) -> torch.Tensor:
    memory: OnDevice = sample.held.memory
    with torch.cuda.stream(memory.stream):
        return picked(sample, memory.tensor)


def _direct_address(sample: Sample) -> int:
    """Where in pinned memory the driver can copy it from where it is, as nothing overtakes it and it lies in one piece on both sides; 0 if it cannot."""
    if sample.held.restless or driver() is None or not sample.held.memory.is_stored_as(sample.held.dtype):
        return 0
    host, length = address_of(sample.host), sample.host.nbytes
    arena = ARENAS.pinned(host, length)
    return host if arena is not None and len(list(arena.cut(host - arena.address, length))) == 1 else 0


def _is_plain(copy: Copy, tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and tensor.dtype == TORCH_TYPES[copy.held.dtype]
