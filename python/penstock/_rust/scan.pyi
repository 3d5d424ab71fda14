"""Scanning: one call per shard, with progress told to a function. Digests."""

from collections.abc import Callable
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from penstock._rust.source import SourceValues

class ScanChoices(TypedDict):
    """What the caller of a scan decides."""

    row_bytes_max: int
    #: How many bad rows may be left out; 0 means that the first one is an error.
    skip_bad: int
    #: Whether a field may hold different kinds of values.
    mixed: bool
    #: One byte.
    delimiter: NotRequired[int | None]
    #: What ``NaN`` counts as: ``float`` or ``null``.
    nan: NotRequired[str | None]

class RowFacts(TypedDict):
    """What Python knows about the rows of a shard."""

    rows: int
    #: First byte of each row (u64) and bytes of each row (u32), where rows are not counted only.
    offsets: npt.NDArray[np.uint64] | None
    lengths: npt.NDArray[np.uint32] | None
    names: list[str] | None
    #: JSON object.
    details: str
    #: Encodings of the columns of MDS samples, with their sizes where fixed; then rows are looked at in the same pass.
    mds_columns: NotRequired[list[tuple[str, int | None]] | None]

class ScanSummary(TypedDict):
    """What a scan has found."""

    rows: int
    bytes: int
    digest: str
    #: Name, kind, and whether it may be missing.
    schema: list[tuple[str, str, bool]]
    #: Rows that were left out: line, first byte, reason.
    bad: list[tuple[int, int, str]]
    #: JSON object.
    details: str
    #: Of MDS samples: the numbers of rows (u64) that may not decode. All others do.
    doubtful: NotRequired[bytes | None]

def digest(data: bytes) -> str:
    """The blake3 digest of some bytes, as ``b3:`` and 64 hexadecimal digits."""

def digest_file(path: Path) -> str:
    """The blake3 digest of a file."""

def quick_hash(data: bytes) -> int:
    """The xxh3_64 hash of some bytes."""

def zstd_head(head: bytes, bytes_max: int) -> bytes:
    """The beginning of what is inside a zstd file, as far as the given beginning of the file reaches."""

def scan_rows(
    format: str,  # noqa: A002
    source: SourceValues,
    index: Path,
    *,
    shard: str,
    choices: ScanChoices,
    progress: Callable[[int, int], object],
) -> ScanSummary:
    """Scan a shard of a format whose rows Rust finds, write its index, and return what was found.

    ``progress`` is told bytes and rows in all about every 4 MiB; an exception there ends the scan and is raised again.
    """

def scan_known(
    format: str,  # noqa: A002
    source: SourceValues,
    index: Path,
    *,
    shard: str,
    choices: ScanChoices,
    progress: Callable[[int, int], object],
    known: RowFacts,
) -> ScanSummary:
    """Sum a shard whose rows Python has found, write its index, and return what was found."""

def reframe(
    source: SourceValues, output: Path, *, shard: str, packing: str, progress: Callable[[int, int], object]
) -> int:
    """Copy the lines of a plain, gzip or zstd file into small zstd frames; the bytes written."""
