"""Tokens as the registry keeps them: Arrow IPC files of one list column of whole numbers, uncompressed.

Any Arrow reader opens them. Because the numbers of a row lie together in the file, a row is a plain byte range there: the
index holds the ranges, and the feed reads tokens without knowing Arrow at all.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock import _rust
from penstock.errors import FileUnusable
from penstock.formats.contract import (
    FieldKind,
    OpenShard,
    Policy,
    Progress,
    RawFile,
    Row,
    RowNumbers,
    Scanned,
)
from penstock.formats.shard_bytes import KnownRows, details_of, gather, open_file, scan_known


class Tokens:
    """The format ``tokens``: one row per list of numbers. Never guessed from content: files like these are Arrow files to everybody else."""

    name = "tokens"
    suffixes: Sequence[str] = ()

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """Only when asked for by name."""
        return False

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Find where the numbers of each row lie."""
        return scan_known("tokens", raw, policy, folder / "index.arrow", progress, _find_rows(raw))

    def open(self, shard: OpenShard) -> "TokenRows":
        """Rows are byte ranges."""
        return TokenRows(open_file(shard))


def _find_rows(raw: RawFile) -> KnownRows:
    import pyarrow as pa

    try:
        source: Any = (
            pa.memory_map(str(raw.path))
            if raw.path is not None
            else pa.BufferReader(raw.read(0, raw.size_bytes))
        )
        whole = source.read_buffer(raw.size_bytes)
        reader = pa.ipc.open_file(pa.BufferReader(whole))
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except (pa.ArrowInvalid, OSError) as reason:
        raise FileUnusable(path=raw.url, reason=f"not a file of tokens: {reason}") from reason
    field = reader.schema.field(0)
    if (
        len(reader.schema) != 1
        or not pa.types.is_large_list(field.type)
        or not pa.types.is_integer(field.type.value_type)
    ):
        raise FileUnusable(
            path=raw.url, reason=f"tokens are one list column of whole numbers, not {reader.schema}"
        )
    dtype = np.dtype(field.type.value_type.to_pandas_dtype()).newbyteorder("<")
    offsets, lengths = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint32)]
    for batch in batches:
        column = batch.column(0)
        ends = np.asarray(column.offsets, dtype=np.uint64) * np.uint64(dtype.itemsize)
        values = column.values.buffers()[1]
        first = (
            np.uint64(values.address - whole.address) if values is not None and values.size else np.uint64(0)
        )
        offsets.append(first + ends[:-1])
        lengths.append((ends[1:] - ends[:-1]).astype(np.uint32))
    return KnownRows(
        rows=sum(batch.num_rows for batch in batches),
        schema=[FieldKind(field.name, "array")],
        offsets=np.concatenate(offsets),
        lengths=np.concatenate(lengths),
        details={"dtype": dtype.str, "field": field.name},
    )


class TokenRows:
    """Rows of one shard of tokens."""

    def __init__(self, file: _rust.ShardFile) -> None:
        self._file = file
        details = details_of(file)
        self._dtype = np.dtype(details["dtype"])
        self._field = details["field"]

    def take(self, rows: RowNumbers) -> list[Row]:
        """Arrays over the gathered bytes."""
        return [{self._field: np.frombuffer(data, dtype=self._dtype)} for data in gather(self._file, rows)]
