"""Comma- and tab-separated values with a header line; quoting as in RFC 4180, also around line ends.

Plain files are read in place, compressed ones (gzip, zstd) through a plain copy made once.
"""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock import _rust
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, Row, RowNumbers, Scanned
from penstock.formats.packed import packing_of, unpacked_head
from penstock.formats.reading import choices, details_of, gather, open_file, scan_rows, scanned
from penstock.formats.unpacking import scan_unpacked

_FIELD_BYTES_MAX = 1 << 30
_SAMPLE_RECORDS = 8
_SURE_RECORDS = 3
#: What is called so is prose, however many commas it has.
_PROSE = (".txt", ".text", ".md", ".log", ".txt.gz", ".txt.zst")
_BYTE_ORDER_MARK = "\ufeff"


class _Delimited:
    """What both have in common."""

    name = ""
    suffixes: Sequence[str] = ()
    delimiter = ","

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """Its first records have as many fields as its header, whose names are different.

        A file that is called so may have a single column or record; any other must look like a table beyond doubt.
        """
        name = raw.name.lower()
        named = name.endswith(tuple(self.suffixes))
        if not named and name.endswith(_PROSE):
            return False
        text = unpacked_head(head, packing_of(head))
        records = self._sample(text, whole=len(head) == raw.size_bytes, strict=not named)
        if not records or len(set(records[0])) < len(records[0]):
            return False
        if any(len(record) != len(records[0]) for record in records):
            # Called so, and its header is one: the scan says which record is wrong.
            return named and len(records[0]) > 1
        if named:
            return len(records[0]) > 1 or not any(mark in records[0][0] for mark in "\t;|")
        return len(records[0]) > 1 and len(records) >= _SURE_RECORDS and all(records[0])

    def _sample(self, text: bytes, *, whole: bool, strict: bool) -> list[list[str]]:
        """The first records, without the last if the sample may end inside it."""
        if b"\0" in text:
            return []
        try:
            # A sample may end inside a character, and of a table by name the scan says which record is no text.
            decoded = text.decode("utf-8", errors="strict" if whole and strict else "replace")
        except UnicodeDecodeError:
            return []
        reader = csv.reader(
            io.StringIO(decoded.removeprefix(_BYTE_ORDER_MARK), newline=""), delimiter=self.delimiter
        )
        try:
            records = [
                record for record, _ in zip(reader, range(_SAMPLE_RECORDS + 1), strict=False) if record
            ]
        except csv.Error:
            return []
        return records[:_SAMPLE_RECORDS] if whole or len(records) < 2 else records[:-1]

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every record is checked to have as many fields as the header; kinds are those that all values fit."""
        packing = packing_of(raw.read(0, 4))
        if packing == "plain":
            return scan_rows(self.name, raw, policy, folder / "index.arrow", progress)

        def scan_copy(copy: Path, index: Path) -> Scanned:
            found = _rust.scan_rows(
                self.name, copy, index, shard=raw.url, choices=choices(policy), progress=lambda *_: None
            )
            return scanned(found, index)

        return scan_unpacked(raw, packing, policy, folder, progress, scan_copy)

    def open(self, shard: OpenShard) -> "DelimitedRows":
        """Rows are byte ranges of records."""
        return DelimitedRows(open_file(shard), shard, self.delimiter)


class Csv(_Delimited):
    """Comma-separated values."""

    name = "csv"
    suffixes: Sequence[str] = (".csv", ".csv.gz", ".csv.zst")


class Tsv(_Delimited):
    """Tab-separated values."""

    name = "tsv"
    suffixes: Sequence[str] = (".tsv", ".tab", ".tsv.gz", ".tsv.zst")
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
