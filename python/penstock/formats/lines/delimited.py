"""Comma- and tab-separated values with a header line; quoting as in RFC 4180, also around line ends.

Plain files are read in place, compressed ones and those in UTF-16 through a plain copy made once. What separates fields is
found by looking at the first records (``dialect.py``), unless the policy says it.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock import _rust
from penstock.errors import FileUnusable
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, Row, RowNumbers, Scanned
from penstock.formats.lines.compression import packing_of
from penstock.formats.lines.dialect import Sample
from penstock.formats.lines.plain_copy import scan_unpacked
from penstock.formats.lines.transcript import encoding_of
from penstock.formats.shard_bytes import choices, details_of, gather, open_file, scan_rows, scanned

_FIELD_BYTES_MAX = 1 << 30
_HEAD_BYTES = 64 << 10
_PACKINGS = ("", ".gz", ".zst", ".bz2", ".xz", ".lz4")
#: What is called so is prose, however many commas it has.
_PROSE = (".text", ".md", ".log", *(".txt" + packing for packing in _PACKINGS))


class _Delimited:
    """What both have in common."""

    name = ""
    suffixes: Sequence[str] = ()
    delimiter = ","
    #: What may separate the fields of a file that is called so.
    delimiters: Sequence[str] = (",", ";", "|")

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """Its first records have as many fields as its header, whose names are different.

        A file that is called so may have a single column or record; any other must look like a table beyond doubt.
        """
        name = raw.name.lower()
        named = name.endswith(tuple(self.suffixes))
        if not named and name.endswith(_PROSE):
            return False
        sample = Sample.of(raw, head, strict=not named)
        delimiter = (sample.delimiter(self.delimiters) if named else None) or self.delimiter
        return sample.is_table(delimiter) if named else sample.is_surely_table(delimiter)

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every record is checked to have as many fields as the header; kinds are those that all values fit."""
        head = raw.read(0, _HEAD_BYTES)
        packing = packing_of(head)
        if (said := Sample.of(raw, head, strict=False).excel_note()) is not None:
            hint = f"delete the line, and register with --delimiter '{said}'"
            raise FileUnusable(
                path=raw.url, reason="its first line is a note of Excel's, not a header", hint=hint
            )
        if not policy.delimiter and (delimiter := Sample.of(raw, head, strict=False).delimiter()) is not None:
            policy = replace(policy, delimiter="" if delimiter == self.delimiter else delimiter)
        if packing == "plain" and encoding_of(head) == "utf-8":
            return scan_rows(self.name, raw, policy, folder / "index.arrow", progress)

        def scan_copy(copy: Path, index: Path) -> Scanned:
            summary = _rust.scan_rows(
                self.name, copy, index, shard=raw.url, choices=choices(policy), progress=lambda *_: None
            )
            return scanned(summary, index)

        return scan_unpacked(raw, packing, policy, folder, progress, scan_copy, text=True)

    def open(self, shard: OpenShard) -> "DelimitedRows":
        """Rows are byte ranges of records."""
        return DelimitedRows(open_file(shard), shard)


class Csv(_Delimited):
    """Comma-separated values."""

    name = "csv"
    suffixes: Sequence[str] = tuple(".csv" + packing for packing in _PACKINGS)


class Tsv(_Delimited):
    """Tab-separated values."""

    name = "tsv"
    suffixes: Sequence[str] = (".tab", *(".tsv" + packing for packing in _PACKINGS))
    delimiter = "\t"
    delimiters: Sequence[str] = ("\t",)


class DelimitedRows:
    """Rows of one shard; an empty field is None, others have the kind that the column was found to have."""

    def __init__(self, file: _rust.ShardFile, shard: OpenShard) -> None:
        self._file = file
        details = details_of(file)
        self._delimiter = details["delimiter"]
        self._names = details["columns"]
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
