"""A saver and a loader as simple as can be, to hold trees against the contract: bytes by boxes, in plain files."""

import pickle
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from penstock.state.contract import ITEM_BYTES, Copy, Held

#: Bytes are moved in stretches that end in odd places, but between elements.
STRETCH = 24


class Copies:
    """Copies that count how often they were asked to be waited for."""

    def __init__(self) -> None:
        self.guarded = 0

    def guard(self) -> None:
        self.guarded += 1

    def wait(self) -> None:
        raise AssertionError("nobody but the room waits for copies")


def taken(held: Held) -> bytearray:
    """The bytes of a held box, taken out in stretches."""
    copied = bytearray(held.bytes)
    held.mover.take(_copies(held, copied)).wait()
    return copied


def put(held: Held, data: bytes) -> None:
    """Fill a held box."""
    copying = held.mover.put(_copies(held, bytearray(data)))
    copying.guard()
    copying.wait()


def save(tree: Any, folder: Path) -> None:
    """Write what this rank is the first to hold."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [
        (held.name, held.dtype, held.shape, held.box.offset, held.box.shape, bytes(taken(held)))
        for held in tree.held()
        if held.replica == 0
    ]
    document = {"pieces": pieces, "values": tree.values(), "entries": tree.entries()}
    (folder / f"{tree.rank}.pickle").write_bytes(pickle.dumps(document))


def read(folder: Path) -> tuple[dict[str, tuple[str, "np.ndarray[Any, Any]"]], list[dict[str, Any]]]:
    """Whole tensors as bytes of their elements; every element must have been written exactly once."""
    ranks = [pickle.loads(path.read_bytes()) for path in sorted(folder.glob("*.pickle"))]
    tensors: dict[str, tuple[str, Any]] = {}
    written: dict[str, int] = {}
    for name, dtype, shape, offset, extent, data in (piece for rank in ranks for piece in rank["pieces"]):
        item = ITEM_BYTES[dtype]
        _, whole = tensors.setdefault(name, (dtype, np.zeros((*shape, item), np.uint8)))
        box = tuple(slice(at, at + length) for at, length in zip(offset, extent, strict=True))
        whole[box] = np.frombuffer(data, np.uint8).reshape(*extent, item)
        written[name] = written.get(name, 0) + prod(extent)
    assert written == {name: whole[..., 0].size for name, (_, whole) in tensors.items()}
    return tensors, ranks


def load(tree: Any, folder: Path) -> None:
    """Fill a tree of any layout."""
    tensors, ranks = read(folder)
    values = ranks[0]["values"]
    kinds = {name: (dtype, whole.shape[:-1]) for name, (dtype, whole) in tensors.items()}
    held = tree.room_for(kinds, values)
    assert {tensor.name for tensor in held} == set(tensors)
    assert set(tree.values()) == set(values)
    for piece in held:
        dtype, whole = tensors[piece.name]
        assert (piece.dtype, piece.shape) == (dtype, whole.shape[:-1]), piece.name
        box = tuple(
            slice(at, at + length) for at, length in zip(piece.box.offset, piece.box.shape, strict=True)
        )
        put(piece, np.ascontiguousarray(whole[box]).tobytes())
    tree.load_values(values)
    tree.loaded()
    if tree.rank < len(ranks):
        tree.load_entries(ranks[tree.rank]["entries"])


def _copies(held: Held, memory: bytearray) -> list[Copy]:
    stretch = max(STRETCH, held.bytes // 7 // ITEM_BYTES[held.dtype] * ITEM_BYTES[held.dtype])
    view = memoryview(memory)
    return [Copy(held, at, view[at : at + stretch]) for at in range(0, len(memory), stretch)]
