"""Comma- and tab-separated values with a header line; quoting as in RFC 4180, also around line ends."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock import _rust
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, Row, RowNumbers, Scanned
from penstock.formats.reading import details_of, gather, open_file, scan_rows

_FIELD_BYTES_MAX = 1 << 30


class _Delimited:
    """What both have in common."""

    name = ""
    suffixes: Sequence[str] = ()
    delimiter = ","

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It is called so, and its first lines have the same number of fields."""
        if not raw.name.endswith(tuple(self.suffixes)) or b"\0" in head:
            return False
        lines = head.decode("utf-8", errors="replace").splitlines()[:5]
        return len(lines) > 0 and (self.delimiter in lines[0] or len(lines[0].split()) == 1)

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every record is checked to have as many fields as the header; kinds are those that all values fit."""
        return scan_rows(self.name, raw, policy, folder / "index.arrow", progress)

    def open(self, shard: OpenShard) -> "DelimitedRows":
        """Rows are byte ranges of records."""
        return DelimitedRows(open_file(shard), shard, self.delimiter)


class Csv(_Delimited):
    """Comma-separated values."""

    name = "csv"
    suffixes: Sequence[str] = (".csv",)


class Tsv(_Delimited):
    """Tab-separated values."""

    name = "tsv"
    suffixes: Sequence[str] = (".tsv", ".tab")
    delimiter = "\t"


class DelimitedRows:
    """Rows of one shard; an empty field is None, others have the kind that the column was found to have."""

    def __init__(self, file: _rust.ShardFile, shard: OpenShard, delimiter: str) -> None:
        self._file = file
        self._delimiter = delimiter
        self._names = details_of(file)["columns"]
        # The kinds of the whole version: a column of whole numbers here may have fractions in another shard.
        kinds = {field.name: field.kind for field in shard.schema}
        self._readers = [_READERS[kinds[name]] for name in self._names]
        csv.field_size_limit(_FIELD_BYTES_MAX)

    def take(self, rows: RowNumbers) -> list[Row]:
        """Gathered and checked in Rust, split here."""
        return [self._row(record) for record in gather(self._file, rows)]

    def _row(self, record: memoryview) -> Row:
        text = str(record, "utf-8")
        (values,) = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter)
        return {
            name: None if value == "" else read(value)
            for name, read, value in zip(self._names, self._readers, values, strict=True)
        }


def _truth(value: str) -> bool:
    return value.lower() == "true"


_READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": _truth,
    "string": str,
    "null": str,
    "mixed": str,
}
