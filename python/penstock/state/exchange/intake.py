"""Bringing a foreign state in: a committed checkpoint, made file by file in bounded memory.

Saving captures a whole state first, because training goes on. Here nothing goes on, so one half of a little memory is filled
from the source while the other is hashed and written; each half becomes a data file. Only when all are written does the manifest follow, then
the fence, and then the commit: an import that dies leaves nothing but garbage, and may simply be made again.
"""

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod

import msgspec

from penstock import _rust, events
from penstock.errors import UsageError
from penstock.events.points import reach
from penstock.state.checkpoint import Checkpoint, checkpoint_of
from penstock.state.contract import ITEM_BYTES, Box
from penstock.state.exchange.foreign_form import Incoming, Source, Wanted
from penstock.state.inspect.statistics import Tell
from penstock.state.log.commit import Gone, commit
from penstock.state.log.incarnation import Member, fence
from penstock.state.log.log import Log
from penstock.state.log.manifest_copies import put_manifest
from penstock.state.log.records import Commit
from penstock.state.log.references import References
from penstock.state.manifest import DataFile, Manifest, Piece, Tensor, chunk_bytes_for
from penstock.state.save.box_cuts import cut
from penstock.state.save.data_file import encode_header, piece_key
from penstock.state.save.parts import Origin, Part, assemble
from penstock.store import Store

#: A half is a 256th of the state, so that there are never very many files, and within these limits.
HALF_BYTES_MIN, HALF_BYTES_MAX = 16 << 20, 256 << 20
_FILES = 256
_THREADS = 4


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a foreign state."""

    checkpoint: Checkpoint
    tensors: int
    bytes: int
    files: int
    #: What was not understood, with the reason.
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class Name:
    """What the checkpoint will be called."""

    step: int
    run: str = ""
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A part of a box that is read and written in one go."""

    incoming: Incoming
    box: Box
    #: First byte in the incoming box.
    start: int

    @property
    def bytes(self) -> int:
        return self.box.elements * ITEM_BYTES[self.incoming.dtype]


def import_state(
    source: Source,
    store: Store,
    name: Name,
    *,
    force: bool = False,
    tell: Tell = lambda done, total: None,
) -> Imported:
    """Make a checkpoint of a foreign state. It begins an incarnation of its own, so whoever saves there meanwhile is fenced off."""
    if name.step < 0:
        raise UsageError(f"step must be a whole number from 0, got {name.step}")
    log = Log(store)
    history = log.read()
    if history.fence is not None and not force:
        raise UsageError(
            f"{store.url} belongs to a run already (incarnation {history.incarnation})",
            hint="import into a new place; with --force the run that saves there now may not save any more",
        )
    incoming = source.incoming()
    # Files of an incarnation that has not begun are nobody's garbage; should another one take the number, the fence is refused.
    incarnation = history.next_incarnation()
    # The whole tensors count, as they do when saving.
    whole = {tensor.name: prod(tensor.shape) * ITEM_BYTES[tensor.dtype] for tensor in incoming}
    writer = _Writer(store, name, incarnation, chunk_bytes_for(sum(whole.values())))
    with events.span("state.import", step=name.step, tensors=len(whole)):
        writer.write(source, incoming, tell)
        manifest = writer.manifest(source)
        new_commit = _describe(store, manifest, name)
        fence(log, Member(0, 1, uuid.uuid4().hex, incarnation))
        committed = commit(log, new_commit, borrowed=(), references=References(store))
    assert not isinstance(committed, Gone), "nothing was borrowed"
    return Imported(
        checkpoint_of(committed, store),
        tensors=len(manifest.tensors),
        bytes=manifest.bytes,
        files=len(manifest.files),
        left_out=source.left_out,
    )


def _describe(store: Store, manifest: Manifest, name: Name) -> Commit:
    """Put the manifest, and make the record that lets it exist."""
    data = manifest.encode()
    manifest_digest = _rust.digest(data)
    put_manifest(store, manifest_digest, data)
    reach("state.described")
    return Commit(
        incarnation=manifest.incarnation,
        step=manifest.step,
        attempt=0,
        manifest=manifest_digest,
        bytes=manifest.bytes,
        at=time.time(),
        metrics=dict(name.metrics),
    )


class _Writer:
    """Writes the data files of one import."""

    def __init__(self, store: Store, name: Name, incarnation: int, chunk_bytes: int) -> None:
        self._store = store
        self._step = name.step
        self._run = name.run or store.url.rpartition("/")[2]
        self._incarnation = incarnation
        self._chunk_bytes = chunk_bytes
        self._files: list[DataFile] = []
        self._tensors: dict[str, Tensor] = {}

    def write(self, source: Source, incoming: list[Incoming], tell: Tell) -> None:
        """Everything, one half after another."""
        total = sum(tensor.bytes for tensor in incoming)
        half = min(max(total // _FILES, HALF_BYTES_MIN), HALF_BYTES_MAX)
        batches = list(_batches(incoming, half))
        room = min(half, max((_bytes(batch) for batch in batches), default=0))
        memory = memoryview(_rust.Arena(max(2 * room, 1)))
        halves = (memory[:room], memory[room:])
        written: list[Future[None] | None] = [None, None]
        done = 0
        with ThreadPoolExecutor(1, thread_name_prefix="penstock-import") as pool:
            for number, batch in enumerate(batches):
                side = number % 2
                if (before := written[side]) is not None:
                    before.result()
                placed = list(_placed(batch, halves[side]))
                source.fill(
                    [Wanted(span.incoming, span.box, span.start, at) for span, at in placed if span.bytes]
                )
                written[side] = pool.submit(self._write, placed)
                done += _bytes(batch)
                tell(done, total)
            for last in written:
                if last is not None:
                    last.result()

    def _write(self, placed: list[tuple[_Cut, memoryview]]) -> None:
        """One data file. Elements of the same size stand together, so that all begin at a multiple of it."""
        hashes = _rust.hash_buffers([memory for _, memory in placed], self._chunk_bytes, _THREADS)
        stamp = {
            "penstock": "1",
            "run": self._run,
            "incarnation": str(self._incarnation),
            "step": str(self._step),
            "rank": "0",
        }
        pieces = [
            (
                piece_key(span.incoming.name, span.incoming.shape, span.box),
                span.incoming.dtype,
                span.box.shape,
                span.bytes,
            )
            for span, _ in placed
        ]
        header = encode_header(pieces, stamp)
        name = f"data/{self._incarnation}/{self._step}-0/0-{uuid.uuid4().hex[:8]}.safetensors"
        length = self._store.put_buffers(name, [memoryview(header), *(memory for _, memory in placed)])
        reach("state.written")
        self._files.append(DataFile(name, length))
        at = len(header)
        for (part, _), digits in zip(placed, hashes, strict=True):
            piece = Piece(part.box.offset, part.box.shape, len(self._files) - 1, at, digits)
            known = self._tensors.setdefault(
                part.incoming.name, Tensor(part.incoming.dtype, part.incoming.shape, [])
            )
            known.pieces.append(piece)
            at += part.bytes

    def manifest(self, source: Source) -> Manifest:
        """What was written."""
        part = Part(0, self._files, self._tensors, source.values, {})
        origin = Origin(self._run, self._step, self._incarnation, parent="")
        manifest = assemble([part], origin, None, self._chunk_bytes)
        ranks = max(1, len(source.entries.ranks))
        return msgspec.structs.replace(manifest, entries=source.entries, ranks=ranks)


def _batches(incoming: list[Incoming], most: int) -> Iterator[list[_Cut]]:
    """What goes into one file each."""
    batch: list[_Cut] = []
    used = 0
    # Within a file every element begins at a multiple of its size, as the library that reads such files wishes.
    for tensor in sorted(incoming, key=lambda item: -ITEM_BYTES[item.dtype]):
        for box, start in cut(tensor.box, ITEM_BYTES[tensor.dtype], most):
            part = _Cut(tensor, box, start)
            if batch and used + part.bytes > most:
                yield batch
                batch, used = [], 0
            batch.append(part)
            used += part.bytes
    if batch:
        yield batch


def _placed(batch: list[_Cut], memory: memoryview) -> Iterator[tuple[_Cut, memoryview]]:
    at = 0
    for part in batch:
        yield part, memory[at : at + part.bytes]
        at += part.bytes


def _bytes(batch: list[_Cut]) -> int:
    return sum(part.bytes for part in batch)
