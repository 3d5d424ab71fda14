"""Row copies of parquet and Arrow shards: the same rows in batches so small that one row of them costs little.

A unit (row group, record batch) is decoded whole, whatever is wanted of it. Where rows are read in random order, units that
hold many of them make every row as expensive as a unit. The copy is a file of small batches, each an Arrow message compressed on
its own; its index says where each of them is, so that a row is one short checked read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import _rust
from penstock.errors import StoreFailed
from penstock.formats.columnar.row_units import open_container, undecodable
from penstock.formats.columnar.survey import first_line
from penstock.formats.contract import OpenShard, Policy
from penstock.formats.scan_files import as_raw
from penstock.formats.shard_bytes import CheckedIO, KnownRows, details_of, open_file, scan_known, silent

if TYPE_CHECKING:
    import pyarrow as pa

#: Formats whose rows are in units.
UNIT_FORMATS = ("parquet", "arrow")
#: Decompressed several times as fast as others, which is most of what a row costs.
_CODEC = "lz4_raw"
#: About how much a batch of the copy holds, before it is compressed.
BATCH_BYTES = 32 << 10
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
        details={"container": "row copy", "skipped": details["skipped"], **layout},
        label=shard.label,
    )
    scan_known("arrow", as_raw(copy), Policy(), index, silent, known)
    return copy, index


def _write(pieces: Iterator["pa.RecordBatch"], copy: Path, batch_bytes: int) -> dict[str, Any]:
    """Write the schema, then every batch as one compressed message; the rows of each, where it ends, and its bytes before."""
    import pyarrow as pa

    codec = pa.Codec(_CODEC)
    rows: list[int] = []
    ends: list[int] = []
    sizes: list[int] = []
    with copy.open("wb") as out:
        for piece in pieces:
            if not ends:
                ends.append(out.write(piece.schema.serialize()))
            step = max(1, piece.num_rows * batch_bytes // max(1, piece.nbytes))
            for start in range(0, piece.num_rows, step):
                part = piece.slice(start, step)
                message = part.serialize()
                ends.append(ends[-1] + out.write(codec.compress(message)))
                sizes.append(message.size)
                rows.append(part.num_rows)
    return {"codec": _CODEC, "rows": rows, "ends": ends, "sizes": sizes}


def _pieces(file: _rust.ShardFile, shard: OpenShard) -> Iterator["pa.RecordBatch"]:
    """All rows as they are delivered, a unit at a time or in smaller pieces."""
    container = open_container(file, shard)
    for number in range(len(container.unit_rows)):
        yield from container.batches(number)
