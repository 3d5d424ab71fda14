"""Many small files read as one: a shard that is a folder.

Every file begins at a block boundary and the space after it reads as zeros, so each block of checksums belongs to one
file: damage names that file and a place in it, and reading a file touches no other. Registered files on stores are read by
the Rust side in the same way, through the cache of the host (``JoinedFile``).
"""

import bisect
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from penstock.errors import CorruptShard, ObjectMissing, StoreError
from penstock.formats.contract import RawFile

#: What checksums cover; as in the index.
BLOCK_BYTES = 64 << 10
_PIECE_BYTES = 1 << 20
_PIECES_MAX = 32


def places(lengths: Sequence[int]) -> list[int]:
    """Where each file begins, and at the end where the last one's space ends."""
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + -(-length // BLOCK_BYTES) * BLOCK_BYTES)
    return starts


class JoinedFiles:
    """The files one after another. Safe to read from any thread."""

    def __init__(self, members: Sequence[RawFile], *, patient: bool = False) -> None:
        self._members = members
        self._starts = places([member.size_bytes for member in members])
        #: Whether a file that cannot be read is remembered and reads as short, instead of ending the work.
        self._patient = patient
        self._problems: dict[int, CorruptShard] = {}
        self._pieces: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Of all files and the space between them."""
        return self._starts[-1]

    def place(self, offset: int) -> tuple[RawFile, int]:
        """The file that a byte belongs to, and the byte's place in it."""
        at = bisect.bisect_right(self._starts, offset, hi=len(self._members)) - 1
        return self._members[at], offset - self._starts[at]

    def read(self, offset: int, length: int) -> bytes:
        """A range of bytes; shorter only where a patient reader meets a file that cannot be read."""
        parts: list[bytes] = []
        end = offset + length
        at = bisect.bisect_right(self._starts, offset, hi=len(self._members)) - 1
        while offset < end:
            stop = min(end, self._starts[at + 1])
            if stop > offset:
                part = self._part(at, offset - self._starts[at], stop - offset)
                if part is None:
                    break
                parts.append(part)
            offset = stop
            at += 1
        return b"".join(parts)

    def damages(self, stretches: list[tuple[int, int, str]]) -> list[tuple[str, int, str]]:
        """Damaged stretches as files, places in them, and reasons; also files that have grown."""
        named: dict[tuple[int, int], str] = {}
        for offset, length, reason in stretches:
            at = bisect.bisect_right(self._starts, offset, hi=len(self._members)) - 1
            while at < len(self._members) and self._starts[at] < offset + length:
                named.setdefault((at, max(0, offset - self._starts[at])), reason)
                at += 1
        for at, member in enumerate(self._members):
            if member.path is None and at not in self._problems:
                self._note(at, partial(self._measure, at))
        whole = {(at, problem.offset): problem.reason for at, problem in self._problems.items()}
        kept = {place: reason for place, reason in named.items() if place[0] not in self._problems}
        return [
            (self._members[at].url, offset, reason) for (at, offset), reason in sorted((whole | kept).items())
        ]

    def _part(self, at: int, start: int, length: int) -> bytes | None:
        member = self._members[at]
        inside = max(0, min(length, member.size_bytes - start))
        if not inside:
            return bytes(length)
        if not self._patient:
            return self._bytes(at, start, inside) + bytes(length - inside)
        data = self._note(at, lambda: self._bytes(at, start, inside))
        return None if data is None else data + bytes(length - inside)

    def _note(self, at: int, work: Callable[[], bytes | None]) -> bytes | None:
        """Do something with a file; what is wrong with it is kept, and the answer is nothing."""
        try:
            return work()
        except CorruptShard as problem:
            self._problems.setdefault(at, problem)
        except StoreError as problem:
            self._problems.setdefault(at, self._corrupt(at, 0, str(problem)))
        return None

    def _bytes(self, at: int, start: int, length: int) -> bytes:
        path = self._members[at].path
        if path is None:
            return self._from_pieces(at, start, length)
        try:
            with path.open("rb") as file:
                self._check_size(at, os.fstat(file.fileno()).st_size)
                data = os.pread(file.fileno(), length, start)
        except FileNotFoundError as reason:
            raise self._corrupt(at, 0, "the file is gone") from reason
        except OSError as reason:
            raise self._corrupt(at, start, f"cannot be read: {reason.strerror}") from reason
        if len(data) != length:
            raise self._corrupt(at, start, "the file ends here, but was registered with more")
        return data

    def _from_pieces(self, at: int, start: int, length: int) -> bytes:
        first, last = start // _PIECE_BYTES, (start + length - 1) // _PIECE_BYTES
        data = b"".join(self._piece(at, number) for number in range(first, last + 1))
        skip = start - first * _PIECE_BYTES
        return data[skip : skip + length]

    def _piece(self, at: int, number: int) -> bytes:
        with self._lock:
            if (piece := self._pieces.get((at, number))) is not None:
                self._pieces.move_to_end((at, number))
                return piece
        try:
            piece = self._members[at].read(number * _PIECE_BYTES, _PIECE_BYTES)
        except StoreError:
            # A file that is gone or shorter is damage; anything else is the store's trouble, and stays that.
            self._measure(at)
            raise
        with self._lock:
            self._pieces[at, number] = piece
            while len(self._pieces) > _PIECES_MAX:
                self._pieces.popitem(last=False)
        return piece

    def _measure(self, at: int) -> None:
        member = self._members[at]
        try:
            size = member.store.describe(member.name).bytes
        except ObjectMissing as reason:
            raise self._corrupt(at, 0, "the file is gone") from reason
        self._check_size(at, size)

    def _check_size(self, at: int, size: int) -> None:
        expected = self._members[at].size_bytes
        if size != expected:
            reason = f"the file has {size} bytes, but was registered with {expected}"
            raise self._corrupt(at, min(size, expected), reason)

    def _corrupt(self, at: int, offset: int, reason: str) -> CorruptShard:
        return CorruptShard(shard=self._members[at].url, offset=offset, reason=reason)
