"""Reading rows that are kept in units: row groups of parquet, record batches of Arrow files and streams.

A unit is decoded on demand through the checked file, so every byte that pyarrow sees has matched its checksum. Decoded
units of all open shards share one cache that is bounded by bytes.
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import CorruptShard
from penstock.formats.columnar import first_line, plain_batch, plain_schema
from penstock.formats.contract import OpenShard, Row, RowNumbers
from penstock.formats.reading import CheckedIO, details_of, open_file

if TYPE_CHECKING:
    import pyarrow as pa

_CACHE_BYTES_MAX = 256 << 20

Decode = Callable[[int], "pa.RecordBatch | pa.Table"]


class _Units:
    """Units decoded lately, by reader and number."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._units: OrderedDict[tuple[int, int], pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[int, int]) -> "pa.Table | None":
        with self._lock:
            unit = self._units.get(key)
            if unit is not None:
                self._units.move_to_end(key)
            return unit

    def put(self, key: tuple[int, int], unit: "pa.Table") -> None:
        with self._lock:
            before = self._units.pop(key, None)
            self._bytes += unit.nbytes - (before.nbytes if before is not None else 0)
            self._units[key] = unit
            while self._bytes > self._bytes_max and self._units:
                self._bytes -= self._units.popitem(last=False)[1].nbytes


_UNITS = _Units(_CACHE_BYTES_MAX)
_SERIALS = itertools.count()


class UnitRows:
    """Rows of one shard whose units are decoded by a function."""

    def __init__(self, label: str, decode: Decode, unit_rows: list[int], skipped: list[int]) -> None:
        self._label = label
        self._decode = decode
        self._ends = np.cumsum(np.asarray(unit_rows, dtype=np.int64))
        # A row that was left out shifts those after it by one.
        self._skipped = np.asarray(skipped, dtype=np.int64) - np.arange(len(skipped))
        self._serial = next(_SERIALS)
        # pyarrow's readers keep state while they decode.
        self._lock = threading.Lock()

    def take(self, rows: RowNumbers) -> list[Row]:
        """Each unit that is touched is decoded once, whatever the order of the rows."""
        wanted = rows.astype(np.int64)
        wanted = wanted + np.searchsorted(self._skipped, wanted, side="right")
        units = np.searchsorted(self._ends, wanted, side="right")
        found: list[Row] = [{}] * len(wanted)
        for number in np.unique(units).tolist():
            places = np.flatnonzero(units == number)
            first = int(self._ends[number - 1]) if number else 0
            for place, row in zip(places.tolist(), self._rows(number, wanted[places] - first), strict=True):
                found[place] = row
        return found

    def _rows(self, number: int, inside: "np.ndarray[Any, Any]") -> list[Row]:
        import pyarrow as pa

        unit = self._unit(number)
        try:
            rows: list[Row] = unit.take(inside).to_pylist()
        except (pa.ArrowException, OverflowError, ValueError) as reason:
            # A version of an earlier release may have times that Python cannot hold.
            raise undecodable(self._label, f"values of unit {number}", reason) from reason
        return rows

    def _unit(self, number: int) -> "pa.Table":
        import pyarrow as pa

        key = (self._serial, number)
        if (unit := _UNITS.get(key)) is not None:
            return unit
        try:
            with self._lock:
                # Another thread may have decoded it while this one waited.
                if (unit := _UNITS.get(key)) is not None:
                    return unit
                unit = plain_table(self._decode(number))
                _UNITS.put(key, unit)
                return unit
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as reason:
            raise undecodable(self._label, f"unit {number}", reason) from reason


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
    import pyarrow as pa

    file = open_file(shard)
    details = details_of(file)
    source = CheckedIO(file, shard.raw.size_bytes)
    try:
        decode = _CONTAINERS[details["container"]](source, details)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as reason:
        raise undecodable(shard.label, "the file", reason) from reason
    return UnitRows(shard.label, decode, details["rows"], details["skipped"])


def _parquet(source: CheckedIO, details: dict[str, Any]) -> Decode:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(source, pre_buffer=True)

    def decode(number: int) -> "pa.Table":
        return file.read_row_group(number, use_threads=False)

    return decode


def _file(source: CheckedIO, details: dict[str, Any]) -> Decode:
    import pyarrow as pa

    reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False))
    return reader.get_batch  # type: ignore[no-any-return]


def _stream(source: CheckedIO, details: dict[str, Any]) -> Decode:
    import pyarrow as pa

    schema_start, schema_end = details["schema"]
    starts, ends = details["starts"], details["ends"]

    def message(start: int, end: int) -> "pa.Buffer":
        # The position is shared, which is safe: the schema is read while opening, and units under the reader's lock.
        source.seek(start)
        return pa.py_buffer(source.read(end - start))

    schema = pa.ipc.read_schema(message(schema_start, schema_end))

    def decode(number: int) -> "pa.RecordBatch":
        return pa.ipc.read_record_batch(pa.ipc.read_message(message(starts[number], ends[number])), schema)

    return decode


_CONTAINERS: dict[str, Callable[[CheckedIO, dict[str, Any]], Decode]] = {
    "parquet": _parquet,
    "file": _file,
    "stream": _stream,
}
