"""Plain copies of compressed files whose rows cannot be reached otherwise: tables in csv.gz, archives in tar.zst."""

from collections.abc import Callable
from pathlib import Path

from penstock.errors import DerivedTooLarge, FileUnusable, StoreFailed
from penstock.formats.contract import Policy, Progress, RawFile, Scanned
from penstock.formats.packed import demand_room
from penstock.formats.reading import CheckedIO, KnownRows, scan_known

_CHUNK_BYTES = 1 << 20
#: How much larger the rest may unpack than the beginning did.
_MARGIN = 1.2


def scan_unpacked(
    raw: RawFile,
    packing: str,
    policy: Policy,
    folder: Path,
    progress: Progress,
    scan_copy: Callable[[Path, Path], Scanned],
) -> Scanned:
    """The original keeps an index of its checksums; rows are those of the copy, which ``scan_copy`` finds."""
    copy, copy_index = folder / "copy", folder / "copy-index.arrow"
    unpack(raw, packing, policy, copy)
    rows = scan_copy(copy, copy_index)
    known = KnownRows(rows=rows.rows, schema=rows.schema)
    original = scan_known(packing, raw, policy, folder / "index.arrow", progress, known)
    original.skipped = rows.skipped
    original.derived, original.derived_index = copy, copy_index
    return original


def unpack(raw: RawFile, packing: str, policy: Policy, copy: Path) -> None:
    """Write what is inside a compressed file, as long as it stays within the limit."""
    import pyarrow as pa

    source = CheckedIO(raw, raw.size_bytes)
    written = 0
    try:
        with copy.open("wb") as out, pa.CompressedInputStream(source, packing) as stream:
            # Ends when the stream does, or at the limit.
            while chunk := _next(stream, raw):
                if written == 0:
                    growth = _MARGIN * len(chunk) / max(1, source.tell())
                    demand_room(raw, policy, copy.parent, growth=growth)
                written += out.write(chunk)
                if written > policy.derived_bytes_max:
                    raise DerivedTooLarge(
                        what=raw.url, needed_bytes=written, allowed_bytes=policy.derived_bytes_max
                    )
    except OSError as reason:
        raise StoreFailed(verb="write", url=str(copy), reason=reason.strerror or str(reason)) from reason


def _next(stream: "object", raw: RawFile) -> bytes:
    import pyarrow as pa

    try:
        chunk: bytes = stream.read(_CHUNK_BYTES)  # type: ignore[attr-defined]
    except (OSError, pa.ArrowException) as reason:
        raise FileUnusable(path=raw.url, reason=f"cannot be decompressed: {reason}") from reason
    return chunk
