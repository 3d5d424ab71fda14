"""WebDataset archives: consecutive members of a tar with one key are a row, ``{"__key__": …, extension: value}``.

Plain archives are read in place; compressed ones through a plain copy made once. Members with a well-known extension
are decoded here when a row is read; that they can be is checked in Rust, in the one pass that registers the archive.
"""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock import _rust
from penstock.errors import FileUnusable
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
from penstock.formats.lines.compression import packing_of, unpacked_head
from penstock.formats.lines.plain_copy import scan_unpacked
from penstock.formats.shard_bytes import choices, gather, open_file, scanned, silent, source_of, steps

if TYPE_CHECKING:
    from penstock._rust.source import SourceValues

KEY = "__key__"
_HEADER_BYTES = 512


class WebDataset:
    """The format ``webdataset``: one row per key of an archive."""

    name = "webdataset"
    suffixes: Sequence[str] = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar.lz4")

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """What is inside, if it is compressed, begins with the header of a tar."""
        import tarfile

        inside = unpacked_head(raw, head)[:_HEADER_BYTES]
        if inside[257:262] == b"ustar":
            return True
        try:
            tarfile.TarInfo.frombuf(inside, "utf-8", "surrogateescape")
        except tarfile.HeaderError:
            return False
        return True

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every member is found by its header, and checked where its extension says what it holds."""
        packing = packing_of(raw.read(0, 16))
        if packing == "plain":
            return _scan(raw.url, source_of(raw), policy, folder / "index.arrow", progress)
        return scan_unpacked(
            raw,
            packing,
            policy,
            folder,
            progress,
            lambda copy, index: _scan(raw.url, copy, policy, index, silent),
        )

    def open(self, shard: OpenShard) -> "ArchiveRows":
        """Rows are byte ranges of members."""
        return ArchiveRows(open_file(shard), shard.label)


class ArchiveRows:
    """Rows of one archive."""

    def __init__(self, file: _rust.ShardFile, label: str) -> None:
        self._file = file
        self._label = label

    def take(self, rows: RowNumbers) -> list[Row]:
        """Gathered and checked in Rust, decoded here."""
        gathered = zip(rows.tolist(), gather(self._file, rows), strict=True)
        return [self._row(number, bytes(row)) for number, row in gathered]

    def _row(self, number: int, row: bytes) -> Row:
        values: Row = {KEY: self._file.key(number)}
        for extension, start, end in _rust.archive_members(self._label, row):
            values[extension] = decode(extension, row[start:end])
        return values


def decode(extension: str, data: bytes) -> Any:
    """A member's value; what registration lets through (``scan/content.rs``) is what its extension says."""
    holder = EXTENSIONS.get(extension.rpartition(".")[2])
    return data if holder is None else _DECODERS[holder](data)


def _text(data: bytes) -> str:
    return data.decode("utf-8")


def _array(data: bytes) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=False)


#: What the last part of an extension says: JSON, text, a whole number or an array; whatever else is bytes.
EXTENSIONS = {
    **dict.fromkeys(("json", "jsn"), "json"),
    **dict.fromkeys(("txt", "text", "transcript"), "text"),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), "int"),
    "npy": "npy",
}
#: As WebDataset decodes them; nothing that would run code, such as pickles, and no images.
_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "json": msgspec.json.decode,
    "text": _text,
    "int": int,
    "npy": _array,
}


def _scan(label: str, source: "SourceValues", policy: Policy, index: Path, progress: Progress) -> Scanned:
    summary = _rust.scan_rows(
        "tar", source, index, shard=label, choices=choices(policy), progress=steps(progress)
    )
    result = scanned(summary, index)
    if any(field.name == KEY for field in result.schema):
        reason = f"a member has the extension {KEY}, which is the name of the key"
        raise FileUnusable(path=label, reason=reason)
    result.schema = [FieldKind(KEY, "string"), *result.schema]
    return result
