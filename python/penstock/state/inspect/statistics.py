"""Figures of tensors: norm, extremes, zeros, and what is no number. Added up block by block, so a tensor is never in memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np

from penstock.state.contract import ITEM_BYTES
from penstock.state.inspect.dtypes import Array, numbers_of
from penstock.state.inspect.piece_reader import Reader

#: Elements that are looked at together; their copies in double precision fit into the caches.
BLOCK = 1 << 18
#: Told bytes done and bytes in all.
Tell = Callable[[int, int], object]


@dataclass(slots=True)
class Figures:
    """Of one tensor. Norm and extremes are those of its finite elements; of complex ones, of their absolute values."""

    elements: int = 0
    square: float = 0.0
    least: float | int | None = None
    greatest: float | int | None = None
    zeros: int = 0
    nan: int = 0
    infinite: int = 0

    @property
    def l2(self) -> float:
        """The Euclidean norm."""
        return sqrt(self.square)

    @property
    def zero_share(self) -> float:
        """The share of elements that are zero."""
        return self.zeros / self.elements if self.elements else 0.0

    def add(self, memory: memoryview, dtype: str) -> None:
        """Take some elements in."""
        # Some patterns of bits are numbers that no calculation makes, and complain.
        with np.errstate(invalid="ignore", over="ignore"):
            for block in blocks(memory, dtype):
                self._add(np.abs(block) if block.dtype.kind == "c" else block)

    def _add(self, block: Array) -> None:
        self.elements += block.size
        self.zeros += block.size - int(np.count_nonzero(block))
        if block.dtype.kind == "f":
            finite = np.isfinite(block)
            nan = int(np.count_nonzero(np.isnan(block)))
            self.nan += nan
            self.infinite += block.size - int(np.count_nonzero(finite)) - nan
            block = block if finite.all() else block[finite]
        if block.size:
            self.square += square_sum(block)
            least, greatest = block.min().item(), block.max().item()
            self.least = least if self.least is None else min(self.least, least)
            self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        document = asdict(self)
        del document["square"]
        return {**document, "l2": self.l2, "zero_share": self.zero_share}


def blocks(memory: memoryview, dtype: str) -> Iterator[Array]:
    """Elements as numbers, block by block."""
    for part in parts_of(memory, dtype):
        yield numbers_of(part, dtype)


def parts_of(memory: memoryview, dtype: str) -> Iterator[memoryview]:
    """The bytes of those blocks."""
    step = BLOCK * ITEM_BYTES[dtype]
    for first in range(0, len(memory), step):
        yield memory[first : first + step]


def square_sum(block: Array) -> float:
    """The sum of squares, in double precision."""
    double = block.astype(np.float64)
    with np.errstate(over="ignore"):
        # Not a dot product: its library starts threads for every block, which cost more than the block.
        return float(np.square(double, out=double).sum())


def figures_of(
    reader: Reader, names: Iterable[str], tell: Tell = lambda done, total: None
) -> dict[str, Figures]:
    """The figures of some tensors, read in the order in which they are stored."""
    figures = {name: Figures() for name in names}
    total = sum(reader.manifest.tensors[name].bytes for name in figures)
    done = 0
    for chunk in reader.read(reader.stored(figures)):
        figures[chunk.part.name].add(chunk.memory, chunk.part.tensor.dtype)
        done += chunk.part.bytes
        tell(done, total)
    return figures
