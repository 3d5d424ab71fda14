"""Megatron's token files: sequences one after another in a .bin, their sizes and documents in the .idx beside it.

A row is one sequence, ``{"tokens": array}``, in the stored dtype. Where a document is not one sequence, a row also says
which ``document`` it belongs to. The shard is the .bin; the .idx is its companion: read when registering, kept by its
digest, and not needed for reading rows.
"""

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock import _rust
from penstock.errors import FileUnusable, ObjectMissing
from penstock.formats.contract import (
    FieldKind,
    OpenShard,
    Policy,
    Progress,
    RawFile,
    Row,
    RowNumbers,
    Scanned,
)
from penstock.formats.scan_files import read_long
from penstock.formats.shard_bytes import KnownRows, details_of, gather, open_file, scan_known

_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
#: Magic, version, dtype, number of sequences, length of the list of documents.
_HEADER = struct.Struct("<9sQBQQ")
#: Megatron-core's codes. Before it, 7 was float64 too; the sizes tell which it is.
_DTYPES = {
    1: ("u1",),
    2: ("i1",),
    3: ("i2",),
    4: ("i4",),
    5: ("i8",),
    6: ("f8",),
    7: ("f4", "f8"),
    8: ("u2",),
}
_LENGTH_MAX = (1 << 32) - 1

_Longs = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class _Table:
    """What an .idx says."""

    dtype: str
    offsets: _Longs
    lengths: _Longs
    #: For each document its first sequence, and at the end the number of sequences.
    documents: _Longs
    #: One byte per sequence where the file is multimodal.
    modes: bytes


class Megatron:
    """The format ``megatron``: one row per sequence of tokens."""

    name = "megatron"
    suffixes: Sequence[str] = (".bin", ".idx")

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """An .idx by its signature, a .bin by the .idx beside it."""
        if head.startswith(_MAGIC):
            return True
        if not raw.name.endswith(".bin"):
            return False
        try:
            return _beside(raw, ".idx").read(0, len(_MAGIC)) == _MAGIC
        except FileUnusable:
            return False

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """The .bin of every pair. Its stamp is that of both, since either changes the rows."""
        shards: dict[str, RawFile] = {}
        for raw in raws:
            if not raw.name.endswith((".bin", ".idx")):
                continue
            tokens = raw if raw.name.endswith(".bin") else _beside(raw, ".bin")
            table = _beside(raw, ".idx") if raw.name.endswith(".bin") else raw
            shards.setdefault(tokens.name, replace(tokens, stamp=f"{tokens.stamp} {table.stamp}"))
        return list(shards.values())

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """The .idx is held against itself and against the size of the .bin; tokens are only summed."""
        companion = _beside(raw, ".idx")
        table = _table(companion, raw)
        kept = table.lengths <= policy.row_bytes_max
        details: dict[str, Any] = {"dtype": table.dtype}
        schema = [FieldKind("tokens", "array")]
        if not np.array_equal(table.documents, np.arange(len(table.lengths) + 1)):
            details["documents"] = _packed(_document_of(table)[kept])
            schema.append(FieldKind("document", "int"))
        if table.modes:
            details["modes"] = _packed(np.frombuffer(table.modes, dtype=np.uint8).astype(np.int64)[kept])
            schema.append(FieldKind("mode", "int"))
        known = KnownRows(
            rows=len(table.lengths),
            schema=schema,
            offsets=table.offsets.astype(np.uint64),
            lengths=table.lengths.astype(np.uint32),
            details=details,
            companions=[companion],
        )
        return scan_known("megatron", raw, policy, folder / "index.arrow", progress, known)

    def open(self, shard: OpenShard) -> "MegatronRows":
        """Rows are byte ranges of sequences."""
        return MegatronRows(open_file(shard))


class MegatronRows:
    """Rows of one .bin."""

    def __init__(self, file: _rust.ShardFile) -> None:
        self._file = file
        details = details_of(file)
        self._dtype = np.dtype(details["dtype"])
        named = {"document": "documents", "mode": "modes"}
        self._numbers = {
            name: _unpacked(details[key]) for name, key in named.items() if details.get(key) is not None
        }

    def take(self, rows: RowNumbers) -> list[Row]:
        """Gathered and checked in Rust; copied, so that a row is the caller's to change."""
        taken: list[Row] = [
            {"tokens": np.frombuffer(data, dtype=self._dtype).copy()} for data in gather(self._file, rows)
        ]
        for name, numbers in self._numbers.items():
            for row, number in zip(taken, numbers[rows.astype(np.int64)].tolist(), strict=True):
                row[name] = number
        return taken


def _beside(raw: RawFile, suffix: str) -> RawFile:
    name = raw.name[: -len(suffix)] + suffix
    try:
        return raw.beside(name)
    except ObjectMissing as reason:
        other = RawFile(raw.store, name, 0, "").url
        hint = "Megatron writes a .bin and an .idx; both are needed"
        raise FileUnusable(
            path=raw.url, reason=f"expected {other} beside it, found none", hint=hint
        ) from reason


def _table(companion: RawFile, raw: RawFile) -> _Table:
    label = companion.url
    opening = companion.read(0, _HEADER.size)
    if len(opening) < _HEADER.size or not opening.startswith(_MAGIC):
        raise FileUnusable(path=label, reason="it does not begin as an .idx of Megatron does")
    _, version, code, count, document_count = _HEADER.unpack(opening)
    if version != _VERSION or code not in _DTYPES:
        raise FileUnusable(path=label, reason=f"version {version} with dtype code {code} is not known")
    if count == 0:
        raise FileUnusable(path=label, reason="it lists no sequences")
    expected = _HEADER.size + 12 * count + 8 * document_count
    if companion.size_bytes not in (expected, expected + count):
        reason = f"for {count:,} sequences and {document_count:,} documents it should have {expected:,} bytes, but has {companion.size_bytes:,}"
        raise FileUnusable(path=label, reason=reason, hint="it is cut off: the writer was not finished")
    data = read_long(companion, _HEADER.size, companion.size_bytes - _HEADER.size)
    sizes = np.frombuffer(data, dtype="<i4", count=count).astype(np.int64)
    pointers = np.frombuffer(data, dtype="<i8", count=count, offset=4 * count)
    documents = np.frombuffer(data, dtype="<i8", count=document_count, offset=12 * count)
    dtype = _dtype(code, sizes, raw.size_bytes)
    lengths = sizes * np.dtype(dtype).itemsize
    _demand_consistent(label, sizes, lengths, pointers, raw)
    if not document_count or documents[0] != 0 or documents[-1] != count or (np.diff(documents) < 0).any():
        raise FileUnusable(path=label, reason=f"its documents do not cover its {count:,} sequences in order")
    return _Table(dtype, pointers, lengths, documents, data[12 * count + 8 * document_count :])


def _dtype(code: int, sizes: _Longs, size_bytes: int) -> str:
    for name in _DTYPES[code]:
        if int(sizes.sum()) * np.dtype(name).itemsize == size_bytes:
            return f"<{name}"
    return f"<{_DTYPES[code][0]}"


def _demand_consistent(label: str, sizes: _Longs, lengths: _Longs, pointers: _Longs, raw: RawFile) -> None:
    """Sequences follow each other without gaps and fill the .bin."""
    if (sizes < 0).any() or (lengths > _LENGTH_MAX).any():
        at = int(np.flatnonzero((sizes < 0) | (lengths > _LENGTH_MAX))[0])
        raise FileUnusable(path=label, reason=f"sequence {at} has {int(sizes[at]):,} tokens")
    ends = np.cumsum(lengths)
    wrong = np.flatnonzero(pointers != ends - lengths)
    if len(wrong):
        at = int(wrong[0])
        reason = f"sequence {at} is said to begin at byte {int(pointers[at]):,}, but those before end at {int(ends[at] - lengths[at]):,}"
        raise FileUnusable(path=label, reason=reason)
    if int(ends[-1]) != raw.size_bytes:
        reason = f"it has {raw.size_bytes:,} bytes, but its .idx lists {int(ends[-1]):,}"
        raise FileUnusable(path=raw.url, reason=reason, hint="it is cut off, or the .idx is of another file")


def _document_of(table: _Table) -> _Longs:
    """The document of each sequence."""
    return np.repeat(np.arange(len(table.documents) - 1), np.diff(table.documents))


def _packed(numbers: _Longs) -> str:
    """Numbers that mostly repeat or rise by one, for the index: about a byte for many of them."""
    steps = np.diff(numbers, prepend=0).astype("<i8")
    return base64.b64encode(zlib.compress(steps.tobytes())).decode()


def _unpacked(text: str) -> _Longs:
    return np.cumsum(np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i8"))
