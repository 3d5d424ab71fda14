"""Compressed line files: in place where rows can be reached cheaply, else through a re-framed copy made once.

A zstd file of many frames of at most ``FRAME_BYTES_MAX`` is read in place. One large frame, gzip, bzip2, xz or lz4 would
have to be decompressed from its beginning for every row; such a file gets a derived copy of many small frames with the
same lines. So does a text that is no lines of UTF-8 yet (see ``transcript.py``).
"""

import bz2
import lzma
import re
import shutil
import zlib
from pathlib import Path

import msgspec

from penstock import _rust
from penstock.errors import DerivedTooLarge
from penstock.formats.contract import Policy, Progress, RawFile, Scanned
from penstock.formats.lines.transcript import Form, form_of, transcribe
from penstock.formats.shard_bytes import (
    KnownRows,
    kept,
    scan_known,
    scan_rows,
    scanned,
    silent,
    source_of,
    steps,
)
from penstock.formats.shard_bytes import choices as as_choices

GZIP = b"\x1f\x8b"
XZ = b"\xfd7zXZ\x00"
LZ4 = b"\x04\x22\x4d\x18"
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")
ZSTD = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = tuple(bytes([0x50 + n, 0x2A, 0x4D, 0x18]) for n in range(16))
#: A row of a larger frame would cost more than a few milliseconds.
FRAME_BYTES_MAX = 4 << 20
#: How much larger than its source a re-framed copy is expected to be, at most.
_GROWTH = 1.5
_DISK_RESERVE = 0.02
_HEAD_BYTES = 64 << 10
_INSIDE_BYTES = 64 << 10
#: As much as a block of bzip2 can need, and a block of lz4 can hold.
_BZIP2_BLOCK_BYTES = 1 << 20
_LZ4_BLOCK_BYTES = 64 << 10
#: What Rust decompresses by itself.
_REFRAMED = ("plain", "gzip", "zstd")


def packing_of(head: bytes) -> str:
    """How a file is compressed, from its first bytes."""
    if head.startswith(GZIP):
        return "gzip"
    if head.startswith((ZSTD, *ZSTD_SKIPPABLE)):
        return "zstd"
    if head.startswith(XZ):
        return "xz"
    if head.startswith(LZ4):
        return "lz4"
    return "bz2" if _BZIP2.match(head) else "plain"


def unpacked_head(raw: RawFile, head: bytes) -> bytes:
    """The beginning of what is inside, as far as the given beginning of the file reaches."""
    packing = packing_of(head)
    if packing == "plain":
        return head
    if packing == "zstd":
        return _rust.zstd_head(head, _INSIDE_BYTES)
    if packing == "bz2" and len(head) < raw.size_bytes:
        # It comes in blocks, of which nothing can be read before their end.
        head = raw.read(0, _BZIP2_BLOCK_BYTES)
    try:
        if packing == "gzip":
            return zlib.decompressobj(wbits=31).decompress(head, _INSIDE_BYTES)
        if packing == "xz":
            return lzma.LZMADecompressor().decompress(head, _INSIDE_BYTES)
        if packing == "bz2":
            return bz2.BZ2Decompressor().decompress(head, _INSIDE_BYTES)
        return _lz4_head(head)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError):
        return b""


def _lz4_head(head: bytes) -> bytes:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(head), "lz4") as stream:
        inside: bytes = stream.read(_LZ4_BLOCK_BYTES)
    return inside


def scan_lines(kind: str, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
    """Scan a line file (``jsonl`` or ``text``), compressed or not."""
    head = raw.read(0, _HEAD_BYTES)
    packing = packing_of(head)
    index = folder / "index.arrow"
    form = form_of(kind, unpacked_head(raw, head))
    if not form.is_plain or packing not in _REFRAMED:
        return _through_transcript(kind, form, raw, policy, folder, progress)
    if packing == "plain":
        return scan_rows(kind, raw, policy, index, progress)
    if packing == "zstd":
        summary = _rust.scan_rows(
            f"{kind}.zst",
            source_of(raw),
            index,
            shard=raw.url,
            choices=as_choices(policy),
            progress=steps(progress),
        )
        if msgspec.json.decode(summary["details"])["frame_bytes_max"] <= FRAME_BYTES_MAX:
            return scanned(summary, index)
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
    summary = _rust.scan_rows(
        f"{kind}.zst", copy, copy_index, shard=raw.url, choices=as_choices(policy), progress=lambda *_: None
    )
    rows = scanned(summary, copy_index)
    known = KnownRows(rows=rows.rows, schema=rows.schema, details=kept(policy))
    original = scan_known(f"{kind}.{packing}", raw, policy, folder / "index.arrow", progress, known)
    return original.read_through(copy, rows)


def _through_transcript(
    kind: str, form: Form, raw: RawFile, policy: Policy, folder: Path, progress: Progress
) -> Scanned:
    """Write the text as lines of UTF-8, then re-frame and scan it as any other."""
    from penstock.formats.lines.plain_copy import Inside, write_copy

    packing = packing_of(raw.read(0, 16))
    lines = folder / "lines"
    inside = Inside(raw, packing)
    write_copy(transcribe(form, inside.in_utf8(), raw.url, policy.row_bytes_max), inside, policy, lines)
    copy, copy_index = folder / "copy.zst", folder / "copy-index.arrow"
    _rust.reframe(lines, copy, shard=raw.url, packing="plain", progress=lambda *_: None)
    lines.unlink()
    summary = _rust.scan_rows(
        f"{kind}.zst", copy, copy_index, shard=raw.url, choices=as_choices(policy), progress=lambda *_: None
    )
    rows = scanned(summary, copy_index)
    known = KnownRows(rows=rows.rows, schema=rows.schema, details={"transcript": form.name, **kept(policy)})
    original = scan_known(f"{kind}.{packing}", raw, policy, folder / "index.arrow", progress, known)
    return original.read_through(copy, rows)


def demand_room(raw: RawFile, policy: Policy, folder: Path, *, growth: float = _GROWTH) -> None:
    """Refuse a copy that would pass the limit or fill the disk, before anything is written."""
    needed = int(raw.size_bytes * growth)
    disk = shutil.disk_usage(folder)
    allowed = min(policy.derived_bytes_max, int(disk.free - disk.total * _DISK_RESERVE))
    if needed > allowed:
        raise DerivedTooLarge(what=raw.url, needed_bytes=needed, allowed_bytes=max(0, allowed))
