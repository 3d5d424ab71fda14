"""States in layouts: the same tensors, divided among any number of ranks."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from penstock.state.contract import Box, Copying, Held
from penstock.state.load.host_mover import DTYPES, HOST, bytes_of

T = TypeVar("T")
#: Which dimension of which tensor is divided; None for a replica on every rank.
Layout = dict[str, int | None]


class Divided:
    """What one rank holds of some tensors."""

    def __init__(
        self, whole: "dict[str, np.ndarray[Any, Any]]", layout: Layout, rank: int, ranks: int
    ) -> None:
        self.rank, self.ranks = rank, ranks
        self.parts: dict[str, tuple[tuple[int, ...], Box, np.ndarray[Any, Any]]] = {}
        for name, array in whole.items():
            offset, shape = [0] * array.ndim, list(array.shape)
            if (at := layout[name]) is not None:
                first, end = (array.shape[at] * k // ranks for k in (rank, rank + 1))
                offset[at], shape[at] = first, end - first
            box = Box(tuple(offset), tuple(shape))
            cut = tuple(slice(o, o + n) for o, n in zip(offset, shape, strict=True))
            self.parts[name] = (array.shape, box, np.ascontiguousarray(array[cut]))
        self._replicated = {name for name, at in layout.items() if at is None}

    def held(self) -> list[Held]:
        """Every part."""
        return [
            Held(
                name,
                DTYPES[array.dtype.name],
                shape,
                box,
                HOST,
                bytes_of(array),
                replica=self.rank if name in self._replicated else 0,
                replicas=self.ranks if name in self._replicated else 1,
            )
            for name, (shape, box, array) in self.parts.items()
        ]

    def arrays(self) -> "dict[str, np.ndarray[Any, Any]]":
        """The parts as arrays."""
        return {name: array for name, (_, _, array) in self.parts.items()}

    def values(self) -> dict[str, Any]:
        """None."""
        return {}

    def load_values(self, values: dict[str, Any]) -> None:
        """None."""

    def loaded(self) -> None:
        """Nothing follows."""

    def entries(self) -> dict[str, Any]:
        """One that differs between ranks."""
        return {"rng": f"of rank {self.rank}"}

    def load_entries(self, entries: dict[str, Any]) -> None:
        """Remember what came."""
        self.came = entries

    def on_save(self, copying: Copying) -> None:
        """Copies in host memory are done at once."""


def gang(ranks: int, work: Callable[[int], T]) -> list[T]:
    """Do something on several ranks at once, each a thread; what each returns."""
    barrier = threading.Barrier(ranks)

    def run(rank: int) -> T:
        barrier.wait(60)
        return work(rank)

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(run, range(ranks)))


def equal(
    left: Sequence["dict[str, np.ndarray[Any, Any]]"], right: Sequence["dict[str, np.ndarray[Any, Any]]"]
) -> bool:
    """Whether all arrays have the same bits."""
    return all(
        a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)
        for a, b in zip(left, right, strict=True)
    )
