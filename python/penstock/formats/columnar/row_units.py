"""Reading rows that are kept in units: row groups of parquet, record batches of Arrow files and streams.

A unit is decoded on demand through the checked file, so every byte that pyarrow sees has matched its checksum. Decoded
units of all open shards share one cache that is bounded by bytes.
"""

import bisect
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock import _rust
from penstock.errors import CorruptShard
from penstock.formats.columnar.survey import PIECE_BYTES, first_line, plain_batch, plain_schema
from penstock.formats.contract import OpenShard, Row, RowNumbers
from penstock.formats.scan_files import read_long
from penstock.formats.shard_bytes import CheckedIO, details_of, open_file

if TYPE_CHECKING:
    import pyarrow as pa

#: Of units as files have them, which are decoded whole for any row, and of the small ones of row copies.
_CACHE_BYTES_MAX = 256 << 20
_COPY_CACHE_BYTES_MAX = 32 << 20
#: Single rows are cut out of a unit; more are gathered.
_CUT_ROWS_MAX = 4

_PIECE_ROWS_MAX = 4096
_BUFFER_BYTES = 1 << 20

Decode = Callable[[int], "pa.RecordBatch | pa.Table"]


class _Units:
    """Units decoded lately, by reader and number."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        #: Each with the bytes that it holds.
        self._units: OrderedDict[tuple[int, int], tuple[pa.RecordBatch | pa.Table, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[int, int]) -> "pa.RecordBatch | pa.Table | None":
        with self._lock:
            unit, _ = self._units.get(key, (None, 0))
            if unit is not None:
                self._units.move_to_end(key)
            return unit

    def put(self, key: tuple[int, int], unit: "pa.RecordBatch | pa.Table", size: int) -> None:
        with self._lock:
            _, before = self._units.pop(key, (None, 0))
            self._bytes += size - before
            self._units[key] = unit, size
            while self._bytes > self._bytes_max and self._units:
                self._bytes -= self._units.popitem(last=False)[1][1]


_UNITS = _Units(_CACHE_BYTES_MAX)
_COPY_UNITS = _Units(_COPY_CACHE_BYTES_MAX)
_SERIALS = itertools.count()


@dataclass(frozen=True, slots=True)
class Container:
    """How one shard keeps its units."""

    #: Rows of each unit, and rows that were left out when the shard was registered.
    unit_rows: list[int]
    skipped: list[int]
    decode: Decode
    #: Whether several threads may decode at once; pyarrow's readers of files keep state while they decode.
    stateless: bool = False
    #: Whether its rows have the types that they are delivered as.
    plain: bool = False
    #: Where decoded units are kept.
    cache: _Units = _UNITS
    #: Decodes a unit piece by piece, where that is possible: a whole one may take more memory than all the rest.
    stream: Callable[[int], Iterator["pa.RecordBatch"]] | None = None
    #: Bytes of each unit, where they are known before it is decoded.
    unit_bytes: Sequence[int] | None = None

    def batches(self, number: int) -> Iterator["pa.RecordBatch"]:
        """The rows of a unit as they are delivered."""
        decoded = self.stream(number) if self.stream is not None else [self.decode(number)]
        for part in decoded:
            yield from plain_table(part).to_batches()


class UnitRows:
    """Rows of one shard whose units are decoded by a function."""

    selects_fields = True

    def __init__(self, label: str, container: Container, fields: Sequence[str] | None = None) -> None:
        self._label = label
        self._decode = container.decode
        self._plain = container.plain
        self._fields = fields
        self._ends = list(itertools.accumulate(container.unit_rows))
        # A row that was left out shifts those after it by one.
        self._skipped = [row - before for before, row in enumerate(container.skipped)]
        self._serial = next(_SERIALS)
        self._cache = container.cache
        self._unit_bytes = container.unit_bytes
        self._lock = nullcontext() if container.stateless else threading.Lock()

    def take(self, rows: RowNumbers) -> list[Row]:
        """Each unit that is touched is decoded once, whatever the order of the rows."""
        # Mostly a few rows of many units, for which numpy takes longer than all the rest.
        wanted: dict[int, tuple[list[int], list[int]]] = {}
        for at, row in enumerate(rows.tolist()):
            number, inside = self._place(row)
            places, insides = wanted.setdefault(number, ([], []))
            places.append(at)
            insides.append(inside)
        taken: list[Row] = [{}] * len(rows)
        for number, (places, insides) in sorted(wanted.items()):
            for at, decoded in zip(places, self._rows(number, insides), strict=True):
                taken[at] = decoded
        return taken

    def _place(self, row: int) -> tuple[int, int]:
        """The unit that holds a row, and the row's place in it."""
        row += bisect.bisect_right(self._skipped, row)
        number = bisect.bisect_right(self._ends, row)
        return number, row - (self._ends[number - 1] if number else 0)

    def _rows(self, number: int, inside: Sequence[int]) -> list[Row]:
        import pyarrow as pa

        unit = self._unit(number)
        if unit.num_columns == 0:
            return [{} for _ in inside]
        try:
            if len(inside) <= _CUT_ROWS_MAX:
                return [unit.slice(row, 1).to_pylist()[0] for row in inside]
            rows: list[Row] = unit.take(inside).to_pylist()
        except (pa.ArrowException, OverflowError, ValueError) as reason:
            # A version of an earlier release may have times that Python cannot hold.
            raise undecodable(self._label, f"values of unit {number}", reason) from reason
        return rows

    def _unit(self, number: int) -> "pa.RecordBatch | pa.Table":
        import pyarrow as pa

        key = (self._serial, number)
        if (unit := self._cache.get(key)) is not None:
            return unit
        try:
            with self._lock:
                # Another thread may have decoded it while this one waited.
                if (unit := self._cache.get(key)) is not None:
                    return unit
                unit = plain_unit(self._decode(number), self._fields, self._plain)
                sizes = self._unit_bytes
                self._cache.put(key, unit, sizes[number] if sizes else unit.get_total_buffer_size())
                return unit
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as reason:
            raise undecodable(self._label, f"unit {number}", reason) from reason


def plain_unit(
    decoded: "pa.RecordBatch | pa.Table", fields: Sequence[str] | None, plain: bool
) -> "pa.RecordBatch | pa.Table":
    """Decoded rows as they are delivered: in one piece where they fit into one, since rows of many pieces are slow to gather."""
    if fields is not None:
        decoded = decoded.select([name for name in decoded.schema.names if name in fields])
    if plain:
        return decoded
    table = plain_table(decoded).combine_chunks()
    batches = table.to_batches()
    return batches[0] if len(batches) == 1 else table


def plain_table(decoded: "pa.RecordBatch | pa.Table") -> "pa.Table":
    """Decoded rows as they are delivered."""
    import pyarrow as pa

    batches = decoded.to_batches() if isinstance(decoded, pa.Table) else [decoded]
    schema = plain_schema(decoded.schema)
    return pa.Table.from_batches([plain_batch(batch, schema) for batch in batches], schema)


def undecodable(label: str, what: str, reason: BaseException) -> CorruptShard:
    """For bytes that are as registered but that pyarrow cannot decode: it could when they were registered."""
    said = f"its bytes are as registered, but this pyarrow cannot decode {what}: {first_line(reason)}"
    return CorruptShard(shard=label, offset=0, reason=said)


def open_units(shard: OpenShard) -> UnitRows:
    """Open a parquet file, an Arrow file or stream, or a copy, as the index says."""
    file = open_file(shard)
    return UnitRows(shard.label, open_container(file, shard), shard.fields)


def open_container(file: _rust.ShardFile, shard: OpenShard) -> Container:
    """How an open shard keeps its units."""
    import pyarrow as pa

    details = details_of(file)
    try:
        return _CONTAINERS[details["container"]](file, shard, details)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as reason:
        raise undecodable(shard.label, "the file", reason) from reason


def _parquet(file: _rust.ShardFile, shard: OpenShard, details: dict[str, Any]) -> Container:
    import pyarrow.parquet as pq

    size = shard.raw.size_bytes
    metadata = pq.ParquetFile(CheckedIO(file, size)).metadata
    columns = None if shard.fields is None else list(shard.fields)

    def decode(number: int) -> "pa.Table":
        # A reader of its own, because one keeps all that it has fetched ahead for as long as it lives.
        reader = pq.ParquetFile(CheckedIO(file, size), metadata=metadata, pre_buffer=True)
        return reader.read_row_group(number, columns=columns, use_threads=False)

    def stream(number: int) -> Iterator["pa.RecordBatch"]:
        group = metadata.row_group(number)
        step = max(1, min(_PIECE_ROWS_MAX, group.num_rows * PIECE_BYTES // max(1, group.total_byte_size)))
        # Far bytes come in few large requests; those of this machine need not be held.
        ahead = {"pre_buffer": True} if shard.raw.path is None else {"buffer_size": _BUFFER_BYTES}
        reader = pq.ParquetFile(CheckedIO(file, size), metadata=metadata, **{"pre_buffer": False, **ahead})
        yield from reader.iter_batches(step, row_groups=[number], columns=columns, use_threads=False)

    return Container(details["rows"], details["skipped"], decode, stream=stream)


def _file(file: _rust.ShardFile, shard: OpenShard, details: dict[str, Any]) -> Container:
    import pyarrow as pa

    source = CheckedIO(file, shard.raw.size_bytes)
    options = pa.ipc.IpcReadOptions(use_threads=False)
    if shard.fields is not None:
        names = pa.ipc.open_file(source).schema.names
        options.included_fields = [at for at, name in enumerate(names) if name in shard.fields]
    reader = pa.ipc.open_file(source, options=options)
    return Container(details["rows"], details["skipped"], reader.get_batch)


def _stream(file: _rust.ShardFile, shard: OpenShard, details: dict[str, Any]) -> Container:
    import pyarrow as pa

    schema_start, schema_end = details["schema"]
    starts, ends = details["starts"], details["ends"]

    def message(start: int, end: int) -> "pa.Buffer":
        return pa.py_buffer(read_long(file, start, end - start))

    schema = pa.ipc.read_schema(message(schema_start, schema_end))

    def decode(number: int) -> "pa.RecordBatch":
        return pa.ipc.read_record_batch(pa.ipc.read_message(message(starts[number], ends[number])), schema)

    return Container(details["rows"], details["skipped"], decode, stateless=True)


def _row_copy(file: _rust.ShardFile, shard: OpenShard, details: dict[str, Any]) -> Container:
    import pyarrow as pa

    ends, sizes = details["ends"], details["sizes"]
    codec = pa.Codec(details["codec"])
    schema = pa.ipc.read_schema(pa.py_buffer(read_long(file, 0, ends[0])))

    def decode(number: int) -> "pa.RecordBatch":
        start, end = ends[number], ends[number + 1]
        message = codec.decompress(read_long(file, start, end - start), decompressed_size=sizes[number])
        return pa.ipc.read_record_batch(pa.ipc.read_message(message), schema)

    rows, skipped = details["rows"], details["skipped"]
    return Container(rows, skipped, decode, stateless=True, plain=True, cache=_COPY_UNITS, unit_bytes=sizes)


_CONTAINERS: dict[str, Callable[[_rust.ShardFile, OpenShard, dict[str, Any]], Container]] = {
    "parquet": _parquet,
    "file": _file,
    "stream": _stream,
    "row copy": _row_copy,
}
