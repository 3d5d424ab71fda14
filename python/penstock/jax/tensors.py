"""Global arrays as the state room sees them: the boxes that devices of this process hold, and how their bytes are moved.

Arrays cannot be written to. What is loaded goes into host memory, box by box, and ``finished`` makes a new array of it, over the same
devices as the old one. A box that several devices hold is moved once per process, and written by one of the processes.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from penstock import _rust
from penstock.errors import TreeInvalid
from penstock.state.contract import Box, Copy, Copying, Held
from penstock.state.load.host_mover import DONE, DTYPES, THREADS, bytes_of


@dataclass(slots=True)
class Piece:
    """A box of an array, on a device of this process."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    #: What is saved; None for an array that is only described.
    source: jax.Array | None
    #: What was loaded; None before that.
    room: "np.ndarray[Any, Any] | None" = None

    def memory(self) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        """Where loaded bytes go."""
        if self.room is None:
            self.room = np.empty(self.shape, self.dtype)
        return bytes_of(self.room)


class PieceMover:
    """Moves bytes between devices and host memory."""

    def prepare(self, arena: memoryview) -> None:
        """JAX copies through memory of its own."""

    def release(self, arena: memoryview) -> None:
        """Nothing was done."""

    def take(self, copies: list[Copy]) -> Copying:
        """Copy at once: the next step may be given the arrays' memory (donation)."""
        pieces: dict[int, Piece] = {id(copy.held.memory): copy.held.memory for copy in copies}
        for piece in pieces.values():
            if piece.source is None:
                raise TreeInvalid(name=piece.name, reason="it is only described, there is nothing to save")
            piece.source.copy_to_host_async()
        arrived = {
            key: bytes_of(np.ascontiguousarray(np.asarray(piece.source))) for key, piece in pieces.items()
        }
        pairs = [(_stretch(arrived[id(copy.held.memory)], copy), copy.host) for copy in copies]
        _rust.copy_buffers(pairs, THREADS)
        return DONE

    def put(self, copies: list[Copy]) -> Copying:
        """Copy into host memory, from which new arrays are made."""
        _rust.copy_buffers(
            [(copy.host, _stretch(copy.held.memory.memory(), copy)) for copy in copies], THREADS
        )
        return DONE


_MOVER = PieceMover()


def held_of(name: str, leaf: Any, rank: int, ranks: int) -> list[Held]:
    """The boxes that this process holds of an array, of a key, or of one that is only described (``ShapeDtypeStruct``)."""
    if is_key(leaf):
        return held_of(name, jax.random.key_data(leaf), rank, ranks)
    dtype = DTYPES.get(leaf.dtype.name)
    if dtype is None:
        raise TreeInvalid(name=name, reason=f"arrays of {leaf.dtype} cannot be saved")
    shape, sharding = tuple(leaf.shape), _sharding(leaf)
    sources = {}
    if isinstance(leaf, jax.Array):
        sources = {shard.device: shard.data for shard in leaf.addressable_shards}
    held = []
    for box, devices in _boxes(shape, sharding).items():
        processes = sorted({device.process_index for device in devices})
        here = [device for device in devices if device.process_index == jax.process_index()]
        if not here:
            continue
        # An array of this process alone stands for one that every process has.
        replica = (rank, ranks) if sharding.is_fully_addressable else (processes.index(rank), len(processes))
        piece = Piece(name, box.shape, leaf.dtype, sources.get(here[0]))
        held.append(Held(name, dtype, shape, box, _MOVER, piece, *replica))
    return held


def finished(leaf: Any, held: list[Held]) -> Any:
    """The new array; the old one, if nothing was loaded for it."""
    if is_key(leaf):
        data = finished(jax.random.key_data(leaf), held)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    if any(part.memory.room is None and part.bytes for part in held):
        return leaf
    shape, sharding = tuple(leaf.shape), _sharding(leaf)
    if getattr(leaf, "weak_type", False) and not shape:
        # Made again as it was made: from a number of Python, which gives way to the types of other arrays.
        return jax.device_put(jnp.asarray(held[0].memory.room.item()), sharding)
    rooms = {part.box: part.memory.memory().view(leaf.dtype).reshape(part.box.shape) for part in held}
    arrays = [
        jax.device_put(rooms[box], SingleDeviceSharding(device, memory_kind=sharding.memory_kind))
        for box, devices in _boxes(shape, sharding).items()
        for device in devices
        if device.process_index == jax.process_index()
    ]
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays)


def is_key(leaf: Any) -> bool:
    """Whether it is an array of keys of random numbers."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _sharding(leaf: Any) -> Sharding:
    sharding: Sharding | None = leaf.sharding
    return SingleDeviceSharding(jax.local_devices()[0]) if sharding is None else sharding


def _boxes(shape: tuple[int, ...], sharding: Sharding) -> dict[Box, list[jax.Device]]:
    """Which devices hold which box, over all processes, in the same order everywhere."""
    devices_by_box: dict[Box, list[jax.Device]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        ranges = [range(*part.indices(length)) for part, length in zip(index or (), shape, strict=True)]
        box = Box(tuple(part.start for part in ranges), tuple(len(part) for part in ranges))
        devices_by_box.setdefault(box, []).append(device)
    return devices_by_box


def _stretch(memory: Any, copy: Copy) -> Any:
    return memory[copy.start : copy.start + copy.host.nbytes]
