"""Parquet: rows in row groups, decoded on demand; files with huge row groups are read through a copy made once."""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from penstock.errors import FileUnusable
from penstock.formats.columnar.survey import PIECE_BYTES, Columnar, Piece, readable, register
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, RowReader, Scanned
from penstock.formats.shard_bytes import CheckedIO

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
#: What Spark and Dask leave beside shards; they have no rows.
_SIDECARS = ("_metadata", "_common_metadata")
_PIECE_ROWS_MAX = 4096
_BUFFER_BYTES = 1 << 20


class Parquet:
    """The format ``parquet``: rows of row groups."""

    name = "parquet"
    suffixes: Sequence[str] = (".parquet", ".pq", ".parq")

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It begins with parquet's mark."""
        return head.startswith((_MAGIC, _ENCRYPTED))

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file but the summaries that some engines write beside them."""
        return [raw for raw in raws if PurePosixPath(raw.name).name not in _SIDECARS]

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every row group is decoded once; the footer says where they are."""
        _check_ends(raw)
        with readable(raw, "parquet"):
            schema = _open(raw).schema_arrow
        file = Columnar(raw, "parquet", schema, lambda: _pieces(raw))
        return register(
            file,
            lambda survey: {"container": "parquet", "rows": survey.unit_rows, "skipped": survey.skipped},
            policy,
            folder,
            progress,
        )

    def open(self, shard: OpenShard) -> RowReader:
        """The file itself, or its copy."""
        from penstock.formats.columnar.row_units import open_units

        return open_units(shard)


def _check_ends(raw: RawFile) -> None:
    """The mark stands at both ends; a file that lacks the second was cut."""
    head, tail = raw.read(0, 4), raw.read(max(0, raw.size_bytes - 4), 4)
    if _ENCRYPTED in (head, tail):
        raise FileUnusable(path=raw.url, reason="it is encrypted", hint="register a decrypted copy")
    if head != _MAGIC:
        raise FileUnusable(path=raw.url, reason="not parquet: it does not begin with PAR1")
    if tail != _MAGIC or raw.size_bytes < 2 * len(_MAGIC) + 4:
        raise FileUnusable(path=raw.url, reason="it begins as parquet but does not end so: it is truncated")


def _open(raw: RawFile) -> "pq.ParquetFile":
    import pyarrow.parquet as pq

    return pq.ParquetFile(CheckedIO(raw, raw.size_bytes), pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _pieces(raw: RawFile) -> Iterator[Piece]:
    """Row groups in pieces of a bounded size, since a whole one may not fit into memory."""
    file = _open(raw)
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        rows = max(1, group.num_rows)
        step = max(1, min(_PIECE_ROWS_MAX, rows * PIECE_BYTES // max(1, group.total_byte_size)))
        column = group.column(0)
        offset = min(place for place in (column.dictionary_page_offset, column.data_page_offset) if place)
        count = 0
        for batch in file.iter_batches(batch_size=step, row_groups=[number], use_threads=False):
            count += batch.num_rows
            yield Piece(number, offset, batch)
        if count != group.num_rows:
            raise ValueError(f"row group {number} has {count} rows, but its footer says {group.num_rows}")
