"""Patrol: pieces that checkpoints share are read again behind training's back, a little after every save.

A piece that never changes is written once and not read before somebody resumes; by then every checkpoint may rest on it. Here damage is found while the
state is still in memory: the checkpoints that are damaged are quarantined, and the next save writes the piece again.
"""

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor

from penstock import events
from penstock.errors import CheckpointDamaged, PenstockError
from penstock.state.checkpoint import checkpoint_of
from penstock.state.contract import ITEM_BYTES
from penstock.state.inspect.piece_reader import Reader, ReadSpan
from penstock.state.log.commit import quarantine
from penstock.state.log.log import Log
from penstock.state.manifest import Manifest, Piece
from penstock.state.save.duplicates import around

#: Read after one save at most; the next look goes on where this one ended.
LOOK_BYTES = 256 << 20
_LOG = logging.getLogger("penstock.state")


class Patrol:
    """The patrol of one rank over the pieces that its saves refer to."""

    def __init__(self, log: Log, rank: int) -> None:
        self._log, self._rank = log, rank
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="penstock-patrol")
        self._look: Future[None] | None = None
        #: Where the last look ended, among pieces in the order of their files.
        self._at = 0
        #: Files in which damage was found.
        self.damaged: frozenset[str] = frozenset()

    def look(self, manifest: Manifest, borrowed: frozenset[str]) -> None:
        """Read some of the pieces that a manifest has in earlier files; returns at once, and does nothing while a look is under way."""
        if borrowed and (self._look is None or self._look.done()):
            self._look = self._reader.submit(self._read_some, manifest, borrowed)

    def wait(self) -> None:
        """Return when no look is under way."""
        if self._look is not None:
            self._look.result()

    def close(self) -> None:
        """Look no more."""
        self._reader.shutdown(wait=True, cancel_futures=True)

    def _read_some(self, manifest: Manifest, borrowed: frozenset[str]) -> None:
        try:
            parts = _parts(manifest, borrowed)
            begin, done = self._at % len(parts) if parts else 0, 0
            reader = Reader(manifest, self._log.store)
            for part in [*parts[begin:], *parts[:begin]]:
                if done >= LOOK_BYTES:
                    break
                self._at = (self._at + 1) % len(parts)
                done += part.bytes
                self._read(reader, part)
        except PenstockError as problem:
            # Trouble of the store is not damage, and loading will find either.
            events.record("state.patrol_failed", reason=str(problem))

    def _read(self, reader: Reader, part: ReadSpan) -> None:
        chunk = max(
            reader.manifest.chunk_bytes,
            LOOK_BYTES // 16 // reader.manifest.chunk_bytes * reader.manifest.chunk_bytes,
        )
        for start in range(0, part.bytes, chunk):
            length = min(chunk, part.bytes - start)
            piece = ReadSpan(part.name, part.tensor, start, length, piece=part.piece)
            try:
                reader.fill([piece], [memoryview(bytearray(length))])
            except CheckpointDamaged as problem:
                self._report_damage(reader.manifest, part, problem)
                return

    def _report_damage(self, manifest: Manifest, part: ReadSpan, problem: CheckpointDamaged) -> None:
        piece = _piece(part)
        name = manifest.files[piece.file].name
        self.damaged |= {name}
        events.record("state.patrol_damage", file=name, tensor=part.name, reason=problem.reason)
        _LOG.warning("%s; the next save writes it again", problem)
        for committed in self._log.read().good():
            checkpoint = checkpoint_of(committed, self._log.store)
            try:
                theirs = checkpoint.manifest
            except CheckpointDamaged:
                continue
            if _refers(theirs, part.name, name, piece) and around(theirs, name, part.name) is None:
                quarantine(self._log, committed.number, str(problem), rank=self._rank, at=time.time())


def _parts(manifest: Manifest, borrowed: frozenset[str]) -> list[ReadSpan]:
    places = [
        (
            piece.file,
            piece.start,
            ReadSpan(name, tensor, 0, piece.box.elements * ITEM_BYTES[tensor.dtype], piece=at),
        )
        for name, tensor in manifest.tensors.items()
        for at, piece in enumerate(tensor.pieces)
        if manifest.files[piece.file].name in borrowed and piece.box.elements
    ]
    return [part for _, _, part in sorted(places, key=lambda place: place[:2])]


def _refers(manifest: Manifest, tensor: str, file: str, piece: Piece) -> bool:
    """Whether a checkpoint has this very piece, and no copy of it."""
    pieces = manifest.tensors[tensor].pieces if tensor in manifest.tensors else []
    return any(manifest.files[other.file].name == file and other.start == piece.start for other in pieces)


def _piece(part: ReadSpan) -> Piece:
    assert part.piece is not None, "a patrol reads what is stored"
    return part.tensor.pieces[part.piece]
