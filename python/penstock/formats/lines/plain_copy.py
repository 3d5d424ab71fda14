"""Plain copies of compressed files whose rows cannot be reached otherwise: tables in csv.gz, archives in tar.zst."""

import bz2
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.errors import DerivedTooLarge, FileUnusable, StoreFailed
from penstock.formats.contract import Policy, Progress, RawFile, Scanned
from penstock.formats.lines.compression import demand_room
from penstock.formats.lines.transcript import in_utf8
from penstock.formats.shard_bytes import CheckedIO, KnownRows, kept, scan_known

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
    *,
    text: bool = False,
) -> Scanned:
    """The original keeps an index of its checksums; rows are those of the copy, which ``scan_copy`` finds.

    The copy of a ``text`` is in UTF-8, whatever the original is in.
    """
    copy, copy_index = folder / "copy", folder / "copy-index.arrow"
    inside = Inside(raw, packing)
    write_copy(inside.in_utf8() if text else iter(inside), inside, policy, copy)
    rows = scan_copy(copy, copy_index)
    known = KnownRows(rows=rows.rows, schema=rows.schema, details=kept(policy))
    original = scan_known(packing, raw, policy, folder / "index.arrow", progress, known)
    return original.read_through(copy, rows)


class Inside:
    """What is inside a file, in pieces."""

    def __init__(self, raw: RawFile, packing: str) -> None:
        self.raw = raw
        self._packing = packing
        self._source = CheckedIO(raw, raw.size_bytes)

    def __iter__(self) -> Iterator[bytes]:
        # Ends when the stream does.
        with _stream(self._source, self._packing) as stream:
            while chunk := _next(stream, self.raw):
                yield chunk

    def in_utf8(self) -> Iterator[bytes]:
        """The pieces of a text, in UTF-8."""
        return in_utf8(iter(self), self.raw.url)

    @property
    def bytes_read(self) -> int:
        """How much of the file the pieces so far came from."""
        return self._source.tell()


def _stream(source: Any, packing: str) -> Any:
    import pyarrow as pa

    if packing == "plain":
        return source
    # Arrow knows no xz, and of bzip2 only the first of several streams.
    if packing in ("bz2", "xz"):
        return _Streams(source, packing)
    return pa.CompressedInputStream(source, packing)


class _Streams:
    """Compressed streams one after another. Python's own readers pass over whatever follows the first of them."""

    def __init__(self, source: CheckedIO, packing: str) -> None:
        self._source = source
        self._begin: Callable[[], Any] = bz2.BZ2Decompressor if packing == "bz2" else lzma.LZMADecompressor
        #: What may stand between streams and after them.
        self._padding = b"" if packing == "bz2" else b"\0"
        self._stream: Any = None
        self._waiting = b""

    def __enter__(self) -> "_Streams":
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    def read(self, size: int) -> bytes:
        """Some of what is inside, nothing at the end."""
        # Each turn reads, begins a stream, or gives something back.
        while True:
            if self._stream is None or self._stream.needs_input:
                self._waiting = self._waiting or self._source.read(_CHUNK_BYTES)
            if self._stream is None:
                self._waiting = self._waiting.lstrip(self._padding) if self._padding else self._waiting
                if not self._waiting:
                    if self._source.tell() >= self._source.size():
                        return b""
                    continue
                self._stream = self._begin()
            if self._stream.needs_input and not self._waiting:
                raise EOFError("it ends before its end mark")
            data: bytes = self._stream.decompress(self._waiting, size)
            self._waiting = b""
            if self._stream.eof:
                self._waiting, self._stream = self._stream.unused_data, None
            if data:
                return data


def write_copy(pieces: Iterator[bytes], inside: Inside, policy: Policy, copy: Path) -> None:
    """Write pieces of a copy, made of what is inside a file, as long as it stays within the limit."""
    written = 0
    raw = inside.raw
    try:
        with copy.open("wb") as out:
            for piece in pieces:
                if written == 0:
                    growth = _MARGIN * len(piece) / max(1, inside.bytes_read)
                    demand_room(raw, policy, copy.parent, growth=growth)
                written += out.write(piece)
                if written > policy.derived_bytes_max:
                    raise DerivedTooLarge(
                        what=raw.url, needed_bytes=written, allowed_bytes=policy.derived_bytes_max
                    )
    except OSError as reason:
        raise StoreFailed(verb="write", url=str(copy), reason=reason.strerror or str(reason)) from reason


def _next(stream: Any, raw: RawFile) -> bytes:
    import pyarrow as pa

    try:
        chunk: bytes = stream.read(_CHUNK_BYTES)
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as reason:
        said = str(reason) or "it ends too early"
        raise FileUnusable(path=raw.url, reason=f"cannot be decompressed: {said}") from reason
    return chunk
