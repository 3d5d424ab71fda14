"""Trees for tests of reading, comparing and exchanging: every type, and layouts that no single process would make."""

import uuid
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from penstock import _rust
from penstock.state import Checkpoint, Checkpoints
from penstock.state.contract import ITEM_BYTES, Box
from penstock.state.exchange.foreign_form import Incoming, Wanted
from penstock.state.exchange.intake import Name, import_state
from penstock.state.inspect.piece_reader import Reader
from penstock.state.manifest import Entries
from penstock.store import Store, open_store

TYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
    "C64": np.complex64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}


def any_bits(dtype: str, shape: tuple[int, ...], seed: int = 0) -> "np.ndarray[Any, Any]":
    """Elements of random bits, NaN and all; truth values are 0 and 1."""
    count = int(np.prod(shape)) * ITEM_BYTES[dtype]
    raw = np.frombuffer(np.random.default_rng(seed).bytes(count), np.uint8)
    return (raw & 1 if dtype == "BOOL" else raw).view(TYPES[dtype]).reshape(shape)


def every_type() -> dict[str, Any]:
    """A tree with every type in every kind of shape, and values of every kind."""
    tensors = {
        f"{dtype}.{at}": any_bits(dtype, shape, at)
        for dtype in TYPES
        for at, shape in enumerate([(), (3, 5), (0, 4), (2, 3, 7)])
    }
    return {
        "model": tensors,
        "optimizer": {"BF16.1": {"exp_avg": any_bits("F32", (3, 5), 9)}},
        "lr": 0.1,
        "big": 2**60,
        "nan": float("nan"),
        "name": "a run",
        "nothing": None,
    }


def saved(
    place: Path | str, tree: Any, *, step: int = 3, entries: dict[str, Any] | None = None
) -> Checkpoint:
    """Save a tree."""
    with Checkpoints(place) as checkpoints:
        return checkpoints.save(step, tree, entries).wait()


def contents(checkpoint: Checkpoint) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Type, shape and bytes of every tensor."""
    reader = Reader(checkpoint.manifest, checkpoint.store)
    return {
        name: (tensor.dtype, tuple(tensor.shape), reader.whole(name).tobytes())
        for name, tensor in checkpoint.manifest.tensors.items()
    }


class Laid:
    """A state in boxes of the test's choice, as a source of imports."""

    def __init__(self, pieces: Iterable[tuple[str, Any, Box]]) -> None:
        self.values: dict[str, Any] = {}
        self.entries = Entries({}, [])
        self.left_out: list[str] = []
        self._pieces = list(pieces)

    def incoming(self) -> list[Incoming]:
        names = {np.dtype(kind): name for name, kind in TYPES.items()}
        return [
            Incoming(name, names[array.dtype], array.shape, box, array) for name, array, box in self._pieces
        ]

    def fill(self, wanted: Any) -> None:
        request: Wanted
        for request in wanted:
            where = tuple(
                slice(first, first + n)
                for first, n in zip(request.box.offset, request.box.shape, strict=True)
            )
            request.memory[:] = np.ascontiguousarray(request.incoming.where[where]).tobytes()


def laid(store: Store, pieces: Iterable[tuple[str, Any, Box]], *, step: int = 3) -> Checkpoint:
    """A checkpoint whose tensors are in exactly these boxes."""
    return import_state(Laid(pieces), store, Name(step), force=True).checkpoint


def columns(array: Any, cuts: list[int]) -> list[Box]:
    """A matrix cut between columns."""
    ends = [0, *cuts, array.shape[1]]
    return [Box((0, a), (array.shape[0], b - a)) for a, b in pairwise(ends)]


def whole(array: Any) -> Box:
    """All of it."""
    return Box((0,) * array.ndim, array.shape)


def in_memory() -> Store:
    """A place of its own."""
    return open_store(f"memory://{uuid.uuid4().hex}/checkpoints")


def digest_of(folder: Path) -> dict[str, str]:
    """What every file below a folder is."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): _rust.digest_file(path) for path in files}
