"""Compressed line files: in place where rows can be reached cheaply, else through a re-framed copy made once.

A zstd file of many frames of at most ``FRAME_BYTES_MAX`` is read in place. One large frame, or gzip, would have to be
decompressed from its beginning for every row; such a file gets a derived copy of many small frames with the same lines.
"""

import shutil
from pathlib import Path

import msgspec

from penstock import _rust
from penstock.errors import DerivedTooLarge
from penstock.formats.contract import Policy, Progress, RawFile, Scanned
from penstock.formats.reading import KnownRows, scan_known, scan_rows, scanned, silent, source_of, steps
from penstock.formats.reading import choices as as_choices

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = tuple(bytes([0x50 + n, 0x2A, 0x4D, 0x18]) for n in range(16))
#: A row of a larger frame would cost more than a few milliseconds.
FRAME_BYTES_MAX = 4 << 20
#: How much larger than its source a re-framed copy is expected to be, at most.
_GROWTH = 1.5
_DISK_RESERVE = 0.02


def packing_of(head: bytes) -> str:
    """How a file is compressed, from its first bytes."""
    if head.startswith(GZIP):
        return "gzip"
    return "zstd" if head.startswith((ZSTD, *ZSTD_SKIPPABLE)) else "plain"


def unpacked_head(head: bytes, packing: str) -> bytes:
    """The beginning of what is inside, as far as the given beginning of the file reaches."""
    import zlib

    if packing == "gzip":
        try:
            return zlib.decompressobj(wbits=31).decompress(head, 64 << 10)
        except zlib.error:
            return b""
    if packing == "zstd":
        return _rust.zstd_head(head, 64 << 10)
    return head


def scan_lines(kind: str, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
    """Scan a line file (``jsonl`` or ``text``), compressed or not."""
    packing = packing_of(raw.read(0, 4))
    index = folder / "index.arrow"
    if packing == "plain":
        return scan_rows(kind, raw, policy, index, progress)
    if packing == "zstd":
        found = _rust.scan_rows(
            f"{kind}.zst",
            source_of(raw),
            index,
            shard=raw.url,
            choices=as_choices(policy),
            progress=steps(progress),
        )
        if msgspec.json.decode(found["details"])["frame_bytes_max"] <= FRAME_BYTES_MAX:
            return scanned(found, index)
        progress = silent
    return _through_copy(kind, packing, raw, policy, folder, progress)


def _through_copy(
    kind: str, packing: str, raw: RawFile, policy: Policy, folder: Path, progress: Progress
) -> Scanned:
    """The original keeps an index of its checksums; rows are those of the copy."""
    demand_room(raw, policy, folder)
    copy = folder / "copy.zst"
    _rust.reframe(source_of(raw), copy, shard=raw.url, packing=packing, progress=lambda *_: None)
    copy_index = folder / "copy-index.arrow"
    found = _rust.scan_rows(
        f"{kind}.zst", copy, copy_index, shard=raw.url, choices=as_choices(policy), progress=lambda *_: None
    )
    rows = scanned(found, copy_index)
    known = KnownRows(rows=rows.rows, schema=rows.schema)
    original = scan_known(f"{kind}.{packing}", raw, policy, folder / "index.arrow", progress, known)
    original.skipped, original.blank_lines = rows.skipped, rows.blank_lines
    original.derived, original.derived_index = copy, copy_index
    return original


def demand_room(raw: RawFile, policy: Policy, folder: Path, *, growth: float = _GROWTH) -> None:
    """Refuse a copy that would pass the limit or fill the disk, before anything is written."""
    needed = int(raw.size_bytes * growth)
    disk = shutil.disk_usage(folder)
    allowed = min(policy.derived_bytes_max, int(disk.free - disk.total * _DISK_RESERVE))
    if needed > allowed:
        raise DerivedTooLarge(what=raw.url, needed_bytes=needed, allowed_bytes=max(0, allowed))
