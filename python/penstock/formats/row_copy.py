"""Row copies of parquet and Arrow shards: the same rows in batches so small that one row of them costs little.

A unit (row group, record batch) is decoded whole, whatever is wanted of it. Where rows are read in random order, units that
hold many of them make every row as expensive as a unit. The copy is an Arrow stream of small compressed batches; its index says
where each of them is, so that a row is one short checked read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import _rust
from penstock.errors import StoreFailed
from penstock.formats.batches import open_container, plain_table, undecodable
from penstock.formats.columnar import first_line
from penstock.formats.contract import OpenShard, Policy
from penstock.formats.copying import as_raw
from penstock.formats.reading import CheckedIO, KnownRows, details_of, open_file, scan_known, silent

if TYPE_CHECKING:
    import pyarrow as pa

#: Formats whose rows are in units.
UNIT_FORMATS = ("parquet", "arrow")
#: About how much a batch of the copy holds, before it is compressed.
BATCH_BYTES = 64 << 10
#: More batches than this make the index of a copy too large; then batches are larger.
BATCHES_MAX = 1 << 15
#: Compressed Arrow files hold about so many times their bytes.
_COMPRESSED = 2


@dataclass(frozen=True, slots=True)
class Units:
    """What the units of a shard hold."""

    count: int
    rows: int
    #: Of all units, decoded; known of parquet, estimated of Arrow.
    bytes: int

    @property
    def unit_bytes(self) -> int:
        """Decoded bytes of a unit, on average."""
        return self.bytes // max(1, self.count)


def measure_units(shard: OpenShard) -> Units:
    """How large the units of a shard are, without decoding them."""
    file = open_file(shard)
    details = details_of(file)
    count, rows = len(details["rows"]), sum(details["rows"])
    if details["container"] != "parquet":
        return Units(count, rows, _COMPRESSED * shard.raw.size_bytes)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.ParquetFile(CheckedIO(file, shard.raw.size_bytes)).metadata
        sizes = [metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as reason:
        raise undecodable(shard.label, "the file", reason) from reason
    return Units(count, rows, sum(sizes))


def write_row_copy(shard: OpenShard, folder: Path) -> tuple[Path, Path]:
    """Copy the rows of a shard; the files of the copy and of its index."""
    import pyarrow as pa

    file = open_file(shard)
    details = details_of(file)
    copy, index = folder / "copy.arrows", folder / "copy-index.arrow"
    batch_bytes = max(BATCH_BYTES, measure_units(shard).bytes // BATCHES_MAX)
    try:
        layout = _write(_pieces(file, shard), copy, batch_bytes)
    except pa.ArrowException as reason:
        raise undecodable(shard.label, "the file", reason) from reason
    except OSError as reason:
        raise StoreFailed(verb="write", url=str(copy), reason=first_line(reason)) from reason
    known = KnownRows(
        rows=shard.rows,
        schema=shard.schema,
        details={"container": "stream", "copy": True, "skipped": details["skipped"], **layout},
        label=shard.label,
    )
    scan_known("arrow", as_raw(copy), Policy(), index, silent, known)
    return copy, index


def _write(pieces: Iterator["pa.RecordBatch"], copy: Path, batch_bytes: int) -> dict[str, Any]:
    import pyarrow as pa

    first = next(pieces)
    schema_end = first.schema.serialize().size
    rows: list[int] = []
    places = [schema_end]
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        pa.OSFile(str(copy), "wb") as sink,
        pa.ipc.new_stream(sink, first.schema, options=options) as writer,
    ):
        for piece in _with_first(first, pieces):
            step = max(1, piece.num_rows * batch_bytes // max(1, piece.nbytes))
            for start in range(0, piece.num_rows, step):
                part = piece.slice(start, step)
                writer.write_batch(part)
                rows.append(part.num_rows)
                places.append(sink.tell())
    return {"rows": rows, "schema": [0, schema_end], "starts": places[:-1], "ends": places[1:]}


def _with_first(first: "pa.RecordBatch", others: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    yield first
    yield from others


def _pieces(file: _rust.ShardFile, shard: OpenShard) -> Iterator["pa.RecordBatch"]:
    """All rows as they are delivered, a unit at a time."""
    container = open_container(file, shard)
    for number in range(len(container.unit_rows)):
        yield from plain_table(container.decode(number)).to_batches()
