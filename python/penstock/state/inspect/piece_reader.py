"""Reading a checkpoint piece by piece or in the order of its elements, in bounded memory, every chunk checked.

Two orders. *Stored*: as pieces lie in their files, which is the cheapest, for everything that does not care (verifying, norms).
*Ordered*: a tensor's elements in C order whatever its layout, for everything that writes them elsewhere. Either way what is wanted is
a list of ``ReadSpan``s; ``Reader.read`` reads as many of them at once as fit into half of its memory, and reads the next ones while the
caller works with these.
"""

import os
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import _rust
from penstock.errors import CheckpointDamaged, ObjectMissing
from penstock.state.contract import ITEM_BYTES, Box
from penstock.state.inspect.dtypes import Array, array_of
from penstock.state.load.load import file_source
from penstock.state.manifest import HASH_DIGITS, Manifest, Piece, Tensor
from penstock.state.save.box_cuts import cut
from penstock.store import Store

#: Both halves together. Each reading thread has some memory of its own beside that.
MEMORY_BYTES = 32 << 20
_THREADS = max(2, min(4, os.cpu_count() or 1))
_ALIGNED = 64


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """Some bytes of a tensor that are read in one go."""

    name: str
    tensor: Tensor
    #: Of the piece, if one is given, else of the tensor's bytes in C order.
    start: int
    bytes: int
    #: Number of the piece that the bytes are counted in; None for the tensor itself.
    piece: int | None = None
    #: Which elements, where there is no piece.
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """A part that was read. Its memory is used again when the next one is asked for."""

    part: ReadSpan
    memory: memoryview


class Reader:
    """Reads one checkpoint. For one thread at a time; reading ahead happens in a thread of its own while somebody iterates."""

    def __init__(self, manifest: Manifest, store: Store, *, memory_bytes: int = MEMORY_BYTES) -> None:
        self.manifest = manifest
        self.store = store
        #: What is read at once, and so the most that a part may have.
        self.part_bytes = max(memory_bytes // 2, manifest.chunk_bytes)

    def stored(self, names: Iterable[str] | None = None) -> list[ReadSpan]:
        """Every byte of some tensors (of all, unless given) in the order of the files; cut at chunks."""
        chosen = self.manifest.tensors if names is None else names
        spans = [part for name in chosen for part in self.of_piece(name)]
        spans.sort(key=lambda part: (self._piece(part).file, self._piece(part).start, part.start))
        return spans

    def of_piece(self, name: str, number: int | None = None) -> Iterator[ReadSpan]:
        """The bytes of one piece of a tensor, or of all of them."""
        tensor = self.manifest.tensors[name]
        chunk = self.manifest.chunk_bytes
        most = self.part_bytes // chunk * chunk
        for at in range(len(tensor.pieces)) if number is None else (number,):
            length = tensor.pieces[at].box.elements * ITEM_BYTES[tensor.dtype]
            for start in range(0, length, most):
                yield ReadSpan(name, tensor, start, min(most, length - start), piece=at)

    def ordered(self, name: str) -> Iterator[ReadSpan]:
        """The bytes of a tensor in C order."""
        tensor = self.manifest.tensors[name]
        if len(tensor.pieces) == 1:
            yield from self.of_piece(name)
            return
        item = ITEM_BYTES[tensor.dtype]
        for box, start in cut(Box((0,) * len(tensor.shape), tensor.shape), item, self.part_bytes):
            if box.elements:
                yield ReadSpan(name, tensor, start, box.elements * item, box=box)

    def rows(self, name: str, first: int, end: int) -> Array:
        """Some rows of a tensor (along its first dimension), as an array."""
        tensor = self.manifest.tensors[name]
        shape = (end - first, *tensor.shape[1:])
        box = Box((first, *(0,) * (len(shape) - 1)), shape)
        length = box.elements * ITEM_BYTES[tensor.dtype]
        memory = memoryview(bytearray(length))
        self.fill([ReadSpan(name, tensor, 0, length, box=box)], [memory])
        return array_of(memory, tensor.dtype, shape)

    def whole(self, name: str) -> Array:
        """One tensor as an array. The only thing here whose memory depends on the tensor."""
        tensor = self.manifest.tensors[name]
        memory = np.empty(tensor.bytes, np.uint8).data
        box = Box((0,) * len(tensor.shape), tensor.shape)
        self.fill([ReadSpan(name, tensor, 0, tensor.bytes, box=box)], [memory])
        return array_of(memory, tensor.dtype, tensor.shape)

    def read(self, parts: Iterable[ReadSpan]) -> Generator[Slice]:
        """The parts one after another, read ahead."""
        batches = self.batches(parts)
        first = next(batches, None)
        if first is None:
            return
        memory = memoryview(_rust.Arena(2 * self.part_bytes))
        halves = (memory[: self.part_bytes], memory[self.part_bytes :])
        with ThreadPoolExecutor(1, thread_name_prefix="penstock-read") as ahead:
            coming = ahead.submit(self._load, first, halves[0])
            for number, batch in enumerate(_ended(batches), start=1):
                now = coming.result()
                if batch is not None:
                    coming = ahead.submit(self._load, batch, halves[number % 2])
                yield from now

    def batches(self, parts: Iterable[ReadSpan]) -> Iterator[list[ReadSpan]]:
        """Parts that are read together."""
        batch: list[ReadSpan] = []
        used = 0
        for part in parts:
            if batch and used + part.bytes > self.part_bytes:
                yield batch
                batch, used = [], 0
            batch.append(part)
            used += _aligned(part.bytes)
        if batch:
            yield batch

    def _load(self, batch: list[ReadSpan], half: memoryview) -> list[Slice]:
        slices = []
        at = 0
        for part in batch:
            slices.append(Slice(part, half[at : at + part.bytes]))
            at += _aligned(part.bytes)
        self.fill(batch, [chunk.memory for chunk in slices])
        return slices

    def fill(self, parts: list[ReadSpan], memories: list[memoryview]) -> None:
        """Read parts into memory, each chunk checked."""
        files: dict[int, int] = {}
        pieces: list[Any] = []
        targets: list[Any] = []
        owners: list[tuple[str, int]] = []
        for number, (part, memory) in enumerate(zip(parts, memories, strict=True)):
            if not part.bytes:
                continue
            for piece, span in self._pieces(part):
                file = files.setdefault(piece.file, len(files))
                pieces.append((number, file, *span))
                owners.append((part.name, piece.file))
            offset, shape = ((0,), (part.bytes,)) if part.box is None else (part.box.offset, part.box.shape)
            targets.append((number, offset, shape, memory))
        sources = [file_source(self.store, self.manifest.files[file]) for file in files]
        try:
            _rust.read_tensors(
                sources,
                pieces,
                targets,
                chunk_bytes=self.manifest.chunk_bytes,
                threads=_THREADS,
                direct=True,
            )
        except CheckpointDamaged as problem:
            if problem.piece is None:
                raise
            name, file_number = owners[problem.piece]
            raise CheckpointDamaged(
                file=self.manifest.files[file_number].name,
                offset=problem.offset,
                reason=problem.reason,
                tensor=name,
            ) from problem
        except ObjectMissing as problem:
            raise CheckpointDamaged(file=problem.url, reason="the file is missing") from problem

    def _pieces(self, part: ReadSpan) -> Iterator[tuple[Piece, tuple[Any, ...]]]:
        """The pieces that a part needs, as the Rust side takes them. Bytes of one piece are a tensor of bytes of their own."""
        if part.box is None:
            piece = self._piece(part)
            chunk = self.manifest.chunk_bytes
            assert part.start % chunk == 0, "parts of pieces begin at chunks"
            first, end = part.start // chunk, -(-(part.start + part.bytes) // chunk)
            hashes = piece.hashes[first * HASH_DIGITS : end * HASH_DIGITS]
            yield piece, (piece.start + part.start, (0,), (part.bytes,), 1, hashes)
            return
        item = ITEM_BYTES[part.tensor.dtype]
        for piece in part.tensor.pieces:
            if _overlap(piece.box, part.box):
                yield piece, (piece.start, piece.offset, piece.shape, item, piece.hashes)

    @staticmethod
    def _piece(part: ReadSpan) -> Piece:
        assert part.piece is not None, "a part of a piece knows which"
        return part.tensor.pieces[part.piece]


def _overlap(one: Box, other: Box) -> bool:
    return all(
        a < b + m and b < a + n
        for a, n, b, m in zip(one.offset, one.shape, other.offset, other.shape, strict=True)
    )


def _ended(batches: Iterator[list[ReadSpan]]) -> Iterator[list[ReadSpan] | None]:
    """The batches, and None after the last."""
    yield from batches
    yield None


def _aligned(bytes_: int) -> int:
    return -(-bytes_ // _ALIGNED) * _ALIGNED
