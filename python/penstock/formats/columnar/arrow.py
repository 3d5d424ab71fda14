"""Arrow IPC, as files (Feather version 2) and as streams (what Hugging Face datasets writes).

A stream has no footer, so the places of its batches are noted when it is registered. A stream with dictionaries cannot
be read from its middle; it is read through a copy, as are batches that are huge or too many, and streams of another byte order.
"""

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import FileUnusable
from penstock.formats.columnar.survey import Columnar, Piece, plain_schema, readable, register
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, RowReader, Scanned
from penstock.formats.shard_bytes import CheckedIO

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC = b"ARROW1"
_FEATHER_1 = b"FEA1"
_CONTINUES = b"\xff\xff\xff\xff"
_STREAM_END = _CONTINUES + bytes(4)
_SCHEMA_BYTES_MAX = 1 << 24
_BUFFER_BYTES = 1 << 20


class Arrow:
    """The format ``arrow``: rows of record batches, of files and of streams."""

    name = "arrow"
    suffixes: Sequence[str] = (".arrow", ".feather", ".ipc", ".arrows")

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It begins with the mark of a file, or with the schema of a stream."""
        if head.startswith(_MAGIC):
            return True
        if not head.startswith(_CONTINUES):
            return False
        length = int.from_bytes(head[4:8], "little")
        if not 0 < length <= _SCHEMA_BYTES_MAX or length % 8:
            return False
        import pyarrow as pa

        try:
            pa.ipc.read_schema(pa.py_buffer(raw.read(0, 8 + length)))
        except (pa.ArrowException, OSError, ValueError):
            return False
        return True

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every batch is decoded once."""
        head = raw.read(0, 8)
        if head.startswith(_FEATHER_1):
            hint = "write it again with pyarrow.feather.write_feather"
            raise FileUnusable(path=raw.url, reason="it is Feather version 1", hint=hint)
        if head.startswith(_MAGIC):
            return _scan_file(raw, policy, folder, progress)
        return _scan_stream(raw, policy, folder, progress)

    def open(self, shard: OpenShard) -> RowReader:
        """The file itself, or its copy."""
        from penstock.formats.columnar.row_units import open_units

        return open_units(shard)


def _scan_file(raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
    import pyarrow as pa

    if raw.read(max(0, raw.size_bytes - len(_MAGIC)), len(_MAGIC)) != _MAGIC:
        reason = "it begins as an Arrow file but does not end so: it is truncated"
        raise FileUnusable(path=raw.url, reason=reason)

    def pieces() -> Iterator[Piece]:
        source = _PlaceIO(raw, raw.size_bytes)
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            source.lowest = raw.size_bytes
            batch = reader.get_batch(number)
            yield Piece(number, source.lowest, batch)

    with readable(raw, "an Arrow file"):
        schema = pa.ipc.open_file(CheckedIO(raw, raw.size_bytes)).schema
        # Names are decoded when they are asked for, and may be no UTF-8.
        plain_schema(schema)
    return register(
        Columnar(raw, "arrow", schema, pieces),
        lambda survey: {"container": "file", "rows": survey.unit_rows, "skipped": survey.skipped},
        policy,
        folder,
        progress,
    )


class _PlaceIO(CheckedIO):
    """Notes the first byte that was read, for messages: pyarrow does not say where batches are."""

    lowest = 0

    def read(self, size: int | None = -1) -> bytes:
        self.lowest = min(self.lowest, self.tell())
        return super().read(size)


def _scan_stream(raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
    import pyarrow as pa

    with readable(raw, "an Arrow stream"):
        source = _buffered(raw)
        schema = pa.ipc.open_stream(source).schema
        schema_end = source.tell()
        plain_schema(schema)
        swapped = _is_foreign(raw)
    # Single messages are decoded without the dictionaries before them, and as if they had this machine's byte order.
    indirect = swapped or any(_has_dictionary(column.type) for column in schema)
    starts: list[int] = []
    ends: list[int] = []

    def pieces() -> Iterator[Piece]:
        starts.clear()
        ends.clear()
        for number, (start, end, batch) in enumerate(
            _decoded(raw) if indirect else _messages(raw, schema, schema_end)
        ):
            starts.append(start)
            ends.append(end)
            yield Piece(number, start, batch)

    return register(
        Columnar(raw, "arrow", schema, pieces),
        lambda survey: {
            "container": "stream",
            "rows": survey.unit_rows,
            "skipped": survey.skipped,
            "schema": [0, schema_end],
            "starts": starts,
            "ends": ends,
        },
        policy,
        folder,
        progress,
        always_copy=indirect,
    )


def _buffered(raw: RawFile) -> io.BufferedReader:
    return io.BufferedReader(CheckedIO(raw, raw.size_bytes), _BUFFER_BYTES)


def _messages(raw: RawFile, schema: "pa.Schema", first: int) -> Iterator[tuple[int, int, "pa.RecordBatch"]]:
    """First byte, end and content of every batch."""
    import pyarrow as pa

    source = _buffered(raw)
    reader = pa.ipc.MessageReader.open_stream(source)
    reader.read_next_message()
    while True:
        start = source.tell()
        try:
            message = reader.read_next_message()
        except StopIteration:
            break
        if message.type != "record batch":
            raise ValueError(f"there is a {message.type} at byte {start}")
        yield start, source.tell(), pa.ipc.read_record_batch(message, schema)
    _check_end(raw, source.tell())


def _decoded(raw: RawFile) -> Iterator[tuple[int, int, "pa.RecordBatch"]]:
    """The same for a stream whose batches need dictionaries that came before them."""
    import pyarrow as pa

    source = _buffered(raw)
    start = 0
    for batch in pa.ipc.open_stream(source):
        yield start, source.tell(), batch
        start = source.tell()
    _check_end(raw, source.tell())


def _check_end(raw: RawFile, end: int) -> None:
    """Without its end mark a stream that was cut between two batches would look whole."""
    if raw.read(max(0, end - len(_STREAM_END)), len(_STREAM_END)) != _STREAM_END:
        reason = f"the stream has no end mark after byte {end}: it is truncated, or its writer was not closed"
        raise FileUnusable(path=raw.url, reason=reason)
    if end != raw.size_bytes:
        raise FileUnusable(path=raw.url, reason=f"there is data after the end of the stream, at byte {end}")


def _is_foreign(raw: RawFile) -> bool:
    """Whether a stream's numbers have another byte order than this machine's; pyarrow does not tell what the schema says about it.

    A message is a FlatBuffers table: an offset leads to its table of fields, the third field is the header, and the first field
    of a schema is its byte order, 0 (little) where it is left out.
    """
    import pyarrow as pa

    data = memoryview(pa.ipc.MessageReader.open_stream(_buffered(raw)).read_next_message().metadata)

    def field(table: int, number: int) -> int:
        fields = table - int.from_bytes(data[table : table + 4], "little", signed=True)
        size = int.from_bytes(data[fields : fields + 2], "little")
        place = fields + 4 + 2 * number
        offset = int.from_bytes(data[place : place + 2], "little") if 4 + 2 * number < size else 0
        return table + offset if offset else 0

    header = field(int.from_bytes(data[:4], "little"), 2)
    order = field(header + int.from_bytes(data[header : header + 4], "little"), 0)
    is_big = bool(order) and int.from_bytes(data[order : order + 2], "little") == 1
    return is_big != (sys.byteorder == "big")


def _has_dictionary(data_type: "pa.DataType") -> bool:
    import pyarrow as pa

    if isinstance(data_type, pa.BaseExtensionType):
        return _has_dictionary(data_type.storage_type)
    return pa.types.is_dictionary(data_type) or any(
        _has_dictionary(data_type.field(at).type) for at in range(data_type.num_fields)
    )
