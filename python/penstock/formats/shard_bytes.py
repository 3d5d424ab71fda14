"""Bytes of shards, checked: from files on this machine directly, from stores piece by piece through the cache of the host."""

import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from penstock import _rust
from penstock.formats.contract import (
    BadLine,
    FieldKind,
    IndexPlace,
    OpenShard,
    Policy,
    Progress,
    RawFile,
    RowNumbers,
    Scanned,
)
from penstock.formats.joined_files import JoinedFiles
from penstock.store.hostcache import use_host_cache

if TYPE_CHECKING:
    from penstock._rust.scan import RowFacts, ScanChoices, ScanSummary
    from penstock._rust.source import SourceValues

_USUAL_DELIMITERS = (",", "\t")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_NO_SAMPLE = "folders, links, hidden files, names without a dot"
_THREADS = min(4, os.cpu_count() or 1)


def source_of(raw: RawFile) -> "SourceValues":
    """What the Rust side reads a file from."""
    if raw.members:
        joined = JoinedFiles(raw.members)
        return raw.url, joined.size_bytes, joined.read
    path = raw.path
    if path is not None:
        return path
    client: _rust.StoreClient | None = getattr(raw.store, "client", None)
    if client is None:
        return raw.url, raw.size_bytes, raw.read
    use_host_cache()
    return client, raw.name, raw.size_bytes, raw.stamp


def members_source(label: str, raw: RawFile, joined: JoinedFiles) -> "SourceValues":
    """What the Rust side reads the files of a registered folder from."""
    client: _rust.StoreClient | None = getattr(raw.store, "client", None)
    if client is None or any(member.path is not None for member in raw.members):
        return label, joined.size_bytes, joined.read
    use_host_cache()
    return client, label, [(member.name, member.size_bytes) for member in raw.members]


def choices(policy: Policy) -> "ScanChoices":
    """A policy as the Rust side takes it."""
    return {
        "row_bytes_max": policy.row_bytes_max,
        "skip_bad": policy.skip_bad,
        "mixed": policy.mixed,
        "delimiter": ord(policy.delimiter) if policy.delimiter else None,
        "nan": None if policy.nan == "error" else policy.nan,
    }


def kept(policy: Policy) -> dict[str, Any]:
    """What the index of an original keeps of the policy, so that a pruned copy can be made again."""
    chosen = policy.reading()
    return {"policy": chosen} if chosen else {}


def steps(progress: Progress) -> Callable[[int, int], None]:
    """Turns totals, as Rust tells them, into what was added since the last time."""
    before = [0, 0]

    def tell(byte_count: int, row_count: int) -> None:
        progress(byte_count - before[0], row_count - before[1])
        before[:] = [byte_count, row_count]

    return tell


def silent(byte_count: int, row_count: int) -> None:
    """For second passes, whose bytes were counted already."""


def scan_rows(format_name: str, raw: RawFile, policy: Policy, index: Path, progress: Progress) -> Scanned:
    """Scan a file of a format whose rows the Rust side finds."""
    summary = _rust.scan_rows(
        format_name, source_of(raw), index, shard=raw.url, choices=choices(policy), progress=steps(progress)
    )
    return scanned(summary, index)


def scan_known(
    format_name: str,
    raw: RawFile,
    policy: Policy,
    index: Path,
    progress: Progress,
    known: "KnownRows",
) -> Scanned:
    """Sum a file whose rows were found in Python, and write its index."""
    summary = _rust.scan_known(
        format_name,
        source_of(raw),
        index,
        shard=known.label or raw.url,
        choices=choices(policy),
        progress=steps(progress),
        known=known.for_rust(),
    )
    result = scanned(summary, index)
    result.schema = known.schema
    result.companions = known.companions
    result.doubtful = np.frombuffer(summary["doubtful"] or b"", dtype=np.uint64)
    return result


class KnownRows(msgspec.Struct, kw_only=True):
    """What a format knows about the rows of a file before it is summed."""

    rows: int
    schema: list[FieldKind]
    #: Where each row is; None when rows are not ranges of bytes and the format finds them itself.
    offsets: "np.ndarray[Any, np.dtype[np.uint64]] | None" = None
    lengths: "np.ndarray[Any, np.dtype[np.uint32]] | None" = None
    names: list[str] | None = None
    #: What reading needs to know; kept in the index.
    details: dict[str, Any] = {}
    companions: list[RawFile] = []
    #: What messages call the file, where that is not its own name: a copy is called what it was made from.
    label: str | None = None
    #: Encodings of the columns of MDS samples, with their sizes where those are fixed; then the scan finds doubtful rows.
    mds_columns: list[tuple[str, int | None]] | None = None

    def for_rust(self) -> "RowFacts":
        """As the Rust side takes it."""
        return {
            "rows": self.rows,
            "offsets": self.offsets,
            "lengths": self.lengths,
            "names": self.names,
            "details": msgspec.json.encode(self.details, order="deterministic").decode(),
            "mds_columns": self.mds_columns,
        }


def scanned(summary: "ScanSummary", index: Path) -> Scanned:
    """What the Rust side found, in our words."""
    details = msgspec.json.decode(summary["details"])
    return Scanned(
        rows=summary["rows"],
        bytes=summary["bytes"],
        digest=summary["digest"],
        schema=[FieldKind(*field) for field in summary["schema"]],
        index=index,
        skipped=[BadLine(*bad) for bad in summary["bad"]],
        blank_lines=details.get("blank_lines", 0),
        notes=_notes(details),
    )


def _notes(details: dict[str, Any]) -> list[str]:
    notes = []
    if (delimiter := details.get("delimiter", ",")) not in _USUAL_DELIMITERS:
        notes.append(f"fields are separated by {delimiter!r}")
    if details.get("nan_rows"):
        notes.append(f"NaN and infinities are read as {details['nan']}")
    names = details["columns"] if "delimiter" in details else ()
    if (number := next(filter(_NUMBER.fullmatch, names), None)) is not None:
        notes.append(f"its first line was taken for names of fields, though {number!r} is a number")
    if count := details.get("skipped_members"):
        notes.append(f"of its members {count:,} are no part of a sample: {_NO_SAMPLE}")
    return notes


def open_file(shard: OpenShard) -> _rust.ShardFile:
    """The shard's checked file with its index."""
    return _rust.ShardFile(source_of(shard.raw), shard.index, shard.index_digest)


def details_of(file: _rust.ShardFile) -> dict[str, Any]:
    """What the format wrote into the index."""
    document: dict[str, Any] = msgspec.json.decode(file.document)
    details: dict[str, Any] = document.get("details", {})
    return {**details, "format": document["format"]}


def gather(file: _rust.ShardFile, rows: RowNumbers) -> list[memoryview]:
    """The bytes of each row, in the order given."""
    data, ends_bytes = file.gather(np.ascontiguousarray(rows, dtype=np.uint64).data, _THREADS)
    view = memoryview(data)
    ends = np.frombuffer(ends_bytes, dtype=np.uint64).tolist()
    return [view[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def check_all(raw: RawFile, index: IndexPlace, index_digest: str) -> list[tuple[str, int, str]]:
    """Every place of a shard that is not as registered: file, offset and reason."""
    if raw.members:
        joined = JoinedFiles(raw.members, patient=True)
        damages = _rust.find_damage((raw.url, joined.size_bytes, joined.read), index, index_digest)
        return joined.damages(damages)
    damages = _rust.find_damage(source_of(raw), index, index_digest)
    return [(raw.url, offset, f"{reason} ({length:,} bytes)") for offset, length, reason in damages]


class ReadsRanges(Protocol):
    """Something with bytes at places: a raw file, or one whose bytes are checked."""

    def read(self, offset: int, length: int, /) -> bytes:
        """The bytes of a range."""


class CheckedIO(io.RawIOBase):
    """A file as a Python file object, for libraries that want one.

    Over a ``ShardFile`` every byte is checked; over a ``RawFile`` (while it is being registered) none is.
    """

    def __init__(self, file: ReadsRanges, size_bytes: int) -> None:
        super().__init__()
        self._file = file
        self._size = size_bytes
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """The place."""
        return self._at

    def size(self) -> int:
        """Bytes in all; pyarrow asks for it."""
        return self._size

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes."""
        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._file.read(self._at, length) if length else b""
        self._at += length
        return data

    def readinto(self, buffer: Any) -> int:
        """The next bytes, into a buffer."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
