"""From captured memory to a durable data file: hash, leave out what an earlier file holds already, write the rest.

A piece whose bytes did not change since the parent is not written again; the part names the range in the earlier file. An earlier
file of which only a little is still needed is not worth keeping for that, so then the little is written again.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain

from msgspec.structs import replace

from penstock import _rust, events
from penstock.errors import StoreError
from penstock.events.points import reach
from penstock.state.contract import Box
from penstock.state.log.references import is_ours
from penstock.state.manifest import DataFile, Duplicate, Manifest, Piece, Tensor
from penstock.state.ranks.replicas import Share
from penstock.state.save.data_file import encode_header, piece_key
from penstock.state.save.duplicates import duplicate_of, with_duplicates
from penstock.store import Store

#: Hashing and writing overlap with training, so they leave most cores alone.
THREADS = max(2, min(8, (os.cpu_count() or 1) // 2))
#: A file that is needed for less than this share of its bytes is not referred to.
WORTH = 0.25
#: Unless it is small.
SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Captured:
    """A share, and the memory that holds its copy."""

    share: Share
    arena: memoryview
    #: First byte in the arena.
    at: int

    @property
    def memory(self) -> memoryview:
        """Its bytes."""
        return self.arena[self.at : self.at + self.share.bytes]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a capture."""

    files: list[DataFile]
    tensors: dict[str, Tensor]
    #: Names of files that an earlier save wrote.
    borrowed: frozenset[str]
    bytes_written: int

    def only(self, names: Collection[str]) -> "Written":
        """Of some tensors; the files are the same."""
        chosen = {name: tensor for name, tensor in self.tensors.items() if name in names}
        return Written(self.files, chosen, self.borrowed, self.bytes_written)

    def without(self, names: Collection[str]) -> "Written":
        """Of all other tensors."""
        return self.only([name for name in self.tensors if name not in names])


@dataclass(frozen=True, slots=True)
class Destination:
    """Where data files go."""

    store: Store
    #: Name of the file below the store.
    name: str
    #: What manifests call it: the name, or the whole URL if the store is not that of the checkpoints.
    called: str


class Known:
    """Pieces of the parent, by tensor and box, with the files they are in."""

    def __init__(self, parent: Manifest | None, chunk_bytes: int, rank: int = 0) -> None:
        self.chunk_bytes = chunk_bytes
        #: How often pieces are to be there that the parent has already.
        self.copies = 1
        self._pieces: dict[tuple[str, str, Box], tuple[Piece, DataFile]] = {}
        if parent is None or parent.chunk_bytes != chunk_bytes:
            return
        own = parent.own[rank].tensors if rank < len(parent.own) else {}
        for name, tensor in (*parent.tensors.items(), *own.items()):
            for piece in tensor.pieces:
                self._pieces[name, tensor.dtype, piece.box] = (piece, parent.files[piece.file])

    def find(self, share: Share, hashes: str) -> tuple[Piece, DataFile] | None:
        """The parent's piece, if it has the same bytes."""
        entry = self._pieces.get((share.held.name, share.held.dtype, share.box))
        return entry if entry is not None and entry[0].hashes == hashes else None


def write(
    captured: list[Captured], known: Known, destinations: Iterable[Destination], stamp: dict[str, str]
) -> Written:
    """Make a capture durable at the first destination that works; what the last one said, if none does."""
    with events.span("state.hash", pieces=len(captured)):
        hashes = _rust.hash_buffers([capture.memory for capture in captured], known.chunk_bytes, THREADS)
    reach("state.hashed")
    old = _borrowed(captured, hashes, known)
    fresh = [at for at in range(len(captured)) if at not in old]
    if known.copies > 1:
        # Later destinations come after pauses, so only the first is asked for.
        rest = iter(destinations)
        first = next(rest)
        destinations = chain([first], rest)
        old = _duplicated(captured, old, first, stamp)
    if not fresh:
        return _written(captured, hashes, old, None, 0)
    header = encode_header(
        [
            (piece_key(held.name, held.shape, share.box), held.dtype, share.box.shape, share.bytes)
            for share, held in ((captured[at].share, captured[at].share.held) for at in fresh)
        ],
        stamp,
    )
    buffers = [memoryview(header), *_joined([captured[at] for at in fresh])]
    problem: StoreError | None = None
    for destination in destinations:
        try:
            with events.span("state.write", bytes=sum(map(len, buffers))):
                length = destination.store.put_buffers(destination.name, buffers)
            file = DataFile(destination.called, length)
            return _written(captured, hashes, old, file, len(header))
        except StoreError as reason:
            problem = reason
            events.record("state.write_failed", file=destination.called, reason=str(reason))
    assert problem is not None, "there is at least one destination"
    raise problem


def _duplicated(
    captured: list[Captured],
    old: dict[int, tuple[Piece, DataFile]],
    place: Destination,
    stamp: dict[str, str],
) -> dict[int, tuple[Piece, DataFile]]:
    """Pieces of earlier files, with second copies of those that had none: they are written now, to a file of their own."""
    bare = [
        at
        for at, (piece, file) in old.items()
        if is_ours(file.name) and duplicate_of(file, piece.start, captured[at].share.bytes) is None
    ]
    if not bare:
        return old
    header = encode_header(
        [
            (piece_key(held.name, held.shape, share.box), held.dtype, share.box.shape, share.bytes)
            for share, held in ((captured[at].share, captured[at].share.held) for at in bare)
        ],
        stamp,
    )
    name = place.name.removesuffix(".safetensors") + "-copy.safetensors"
    try:
        length = place.store.put_buffers(name, [memoryview(header), *_joined([captured[at] for at in bare])])
    except StoreError as reason:
        # The checkpoint is whole without it; the next save tries again.
        events.record("state.write_failed", file=name, reason=str(reason))
        return old
    more: dict[str, list[Duplicate]] = defaultdict(list)
    at_byte = len(header)
    for at in bare:
        piece, file = old[at]
        more[file.name].append(Duplicate(piece.start, captured[at].share.bytes, name, length, at_byte))
        at_byte += captured[at].share.bytes
    files = {file.name: with_duplicates(file, more[file.name]) for _, file in old.values()}
    return {at: (piece, files[file.name]) for at, (piece, file) in old.items()}


def _joined(captured: list[Captured]) -> list[memoryview]:
    """Their memory, neighbours as one, so that whole pages of it are written from where they are."""
    runs: list[tuple[memoryview, int, int]] = []
    for capture in captured:
        if runs and runs[-1][0] is capture.arena and runs[-1][2] == capture.at:
            runs[-1] = (capture.arena, runs[-1][1], capture.at + capture.share.bytes)
        else:
            runs.append((capture.arena, capture.at, capture.at + capture.share.bytes))
    return [arena[first:end] for arena, first, end in runs]


def _borrowed(captured: list[Captured], hashes: list[str], known: Known) -> dict[int, tuple[Piece, DataFile]]:
    """Which captures the parent's files hold already."""
    borrowed = {}
    for at, capture in enumerate(captured):
        if capture.share.bytes and (old := known.find(capture.share, hashes[at])) is not None:
            borrowed[at] = old
    needed: dict[str, int] = defaultdict(int)
    for at, (_, file) in borrowed.items():
        needed[file.name] += captured[at].share.bytes
    return {
        at: old for at, old in borrowed.items() if needed[old[1].name] >= WORTH * old[1].bytes - SMALL_BYTES
    }


def _written(
    captured: list[Captured],
    hashes: list[str],
    old: dict[int, tuple[Piece, DataFile]],
    file: DataFile | None,
    header_bytes: int,
) -> Written:
    # In the order in which they are first named; the new one, if there is one, is the first.
    numbers: dict[DataFile, int] = {} if file is None else {file: 0}
    tensors: dict[str, Tensor] = {}
    at_byte = header_bytes
    for at, capture in enumerate(captured):
        share, held = capture.share, capture.share.held
        if at in old:
            number = numbers.setdefault(old[at][1], len(numbers))
            piece = Piece(share.box.offset, share.box.shape, number, old[at][0].start, hashes[at])
        else:
            piece = Piece(share.box.offset, share.box.shape, 0, at_byte, hashes[at])
            at_byte += share.bytes
        tensors.setdefault(held.name, Tensor(held.dtype, held.shape, [])).pieces.append(piece)
    borrowed = frozenset(old_file.name for _, old_file in old.values())
    return Written(list(numbers), tensors, borrowed, at_byte - header_bytes)


def joined(parts: list[Written]) -> Written:
    """Several as one."""
    numbers: dict[DataFile, int] = {}
    tensors: dict[str, Tensor] = {}
    for part in parts:
        for file in part.files:
            numbers.setdefault(file, len(numbers))
        for name, tensor in part.tensors.items():
            pieces = [replace(piece, file=numbers[part.files[piece.file]]) for piece in tensor.pieces]
            tensors.setdefault(name, Tensor(tensor.dtype, tensor.shape, [])).pieces.extend(pieces)
    borrowed = frozenset(name for part in parts for name in part.borrowed)
    return Written(list(numbers), tensors, borrowed, sum(part.bytes_written for part in parts))
