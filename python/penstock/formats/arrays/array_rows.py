"""Rows of arrays: a row is the same index of the first axis of every array of a file, ``{name: array}``.

Where a row lies follows from its number, so an index holds the columns and no table of rows: a billion rows cost
nothing. What npy, npz and safetensors share lives here; each of them only says where its arrays begin.
"""

import ast
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _rust
from penstock.errors import FileEmpty, FileUnusable
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
from penstock.formats.shard_bytes import KnownRows, details_of, open_file, scan_known

#: Wanted rows that are closer than this are read in one piece, up to the size of a run.
_GAP_BYTES_MAX = 4 << 10
_RUN_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class Column:
    """One array of a file, its values in rows one after another."""

    name: str
    #: As numpy writes a dtype, so that structured ones are kept too.
    dtype: str
    #: All axes, rows first.
    shape: tuple[int, ...]
    #: First byte of its values.
    offset: int
    #: What the values mean, where numpy alone has no such dtype (bfloat16).
    meaning: str = ""

    @property
    def stored(self) -> "np.dtype[Any]":
        """The dtype of the stored values."""
        return to_dtype(self.dtype)

    @property
    def delivered(self) -> "np.dtype[Any]":
        """The dtype rows have: what the values mean if ml_dtypes is there, else their bits."""
        return _extended(self.meaning) or self.stored

    @property
    def row_bytes(self) -> int:
        """Bytes from one row to the next."""
        return self.stored.itemsize * math.prod(self.shape[1:])

    @property
    def size_bytes(self) -> int:
        """Bytes of all values."""
        return self.stored.itemsize * math.prod(self.shape)


def from_dtype(dtype: "np.dtype[Any]") -> str:
    """A dtype as text."""
    return repr(np.lib.format.dtype_to_descr(dtype))


def to_dtype(text: str) -> "np.dtype[Any]":
    """The dtype that was written as text."""
    return np.lib.format.descr_to_dtype(ast.literal_eval(text))


def _extended(meaning: str) -> "np.dtype[Any] | None":
    if not meaning:
        return None
    try:
        import ml_dtypes
    except ImportError:
        return None
    dtype = getattr(ml_dtypes, meaning, None)
    return None if dtype is None else np.dtype(dtype)


def scan_columns(
    format_name: str,
    raw: RawFile,
    columns: Sequence[Column],
    policy: Policy,
    index: Path,
    progress: Progress,
    label: str | None = None,
) -> Scanned:
    """Check that the columns are rows of one table, and write an index that holds them."""
    known = KnownRows(
        rows=_row_count(columns, label or raw.url, policy),
        schema=[FieldKind(column.name, "array") for column in columns],
        details={
            "columns": [
                [column.name, column.dtype, column.shape, column.offset, column.meaning] for column in columns
            ]
        },
        label=label,
    )
    return scan_known(format_name, raw, policy, index, progress, known)


def _row_count(columns: Sequence[Column], label: str, policy: Policy) -> int:
    if not columns:
        raise FileUnusable(path=label, reason="it holds no array")
    for column in columns:
        if not column.shape:
            raise FileUnusable(path=label, reason=f"{column.name!r} is a single value: it has no rows")
    first = columns[0]
    for column in columns:
        if column.shape[0] != first.shape[0]:
            reason = (
                f"{first.name!r} has {first.shape[0]:,} rows, but {column.name!r} has {column.shape[0]:,}"
            )
            hint = "arrays of one file are columns of one table; weights of a model are no dataset"
            raise FileUnusable(path=label, reason=reason, hint=hint)
    if first.shape[0] == 0:
        raise FileEmpty(path=label, reason="its arrays have no rows")
    row_bytes = sum(column.row_bytes for column in columns)
    if row_bytes > policy.row_bytes_max:
        reason = f"a row has {row_bytes:,} bytes, at most {policy.row_bytes_max:,} are allowed"
        raise FileUnusable(
            path=label, reason=reason, hint="rows are along the first axis; is it the right one?"
        )
    return first.shape[0]


def open_columns(shard: OpenShard) -> "ArrayRows":
    """Open a file of arrays, or a copy of one."""
    file = open_file(shard)
    columns = [
        Column(name, dtype, tuple(shape), offset, meaning)
        for name, dtype, shape, offset, meaning in details_of(file)["columns"]
    ]
    return ArrayRows(file, columns)


class ArrayRows:
    """Rows of one file of arrays."""

    def __init__(self, file: _rust.ShardFile, columns: list[Column]) -> None:
        self._file = file
        self._columns = columns

    def take(self, rows: RowNumbers) -> list[Row]:
        """Each column is read into one new array; rows are its items, the caller's to change."""
        wanted = rows.astype(np.int64)
        arrays = {column.name: self._read(column, wanted) for column in self._columns}
        return [{name: array[at, ...] for name, array in arrays.items()} for at in range(len(wanted))]

    def _read(self, column: Column, wanted: npt.NDArray[np.int64]) -> "np.ndarray[Any, Any]":
        stored, width, shape = column.stored, column.row_bytes, column.shape[1:]
        gathered = np.empty((len(wanted), *shape), dtype=stored)
        if width:
            order = np.argsort(wanted, kind="stable")
            ordered = wanted[order]
            for start, end in runs(ordered, width):
                first, last = int(ordered[start]), int(ordered[end - 1])
                data = self._file.read(column.offset + first * width, (last - first + 1) * width)
                values = np.frombuffer(data, dtype=stored).reshape(last - first + 1, *shape)
                gathered[order[start:end]] = values[ordered[start:end] - first]
        return gathered.view(column.delivered) if column.meaning else gathered


def runs(ordered: npt.NDArray[np.int64], width: int) -> Iterator[tuple[int, int]]:
    """Stretches of sorted row numbers to read in one piece each: first, and the one after the last."""
    if not len(ordered):
        return
    far = np.diff(ordered) * width > _GAP_BYTES_MAX + width
    starts = np.concatenate([[0], np.flatnonzero(far) + 1])
    firsts = np.repeat(ordered[starts], np.diff(np.append(starts, len(ordered))))
    # A run that would be too long is cut at every multiple of the limit.
    pieces = (ordered - firsts) * width // _RUN_BYTES_MAX
    cuts = np.flatnonzero((np.diff(firsts) != 0) | (np.diff(pieces) != 0)) + 1
    yield from zip([0, *cuts.tolist()], [*cuts.tolist(), len(ordered)], strict=True)
