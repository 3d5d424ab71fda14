"""What separates the fields of a table, found by looking at its first records.

The comma is asked first, so a table that is one with commas stays that. Another character is taken only if it cuts the header
and all of the first records into the same number of fields, two at least, and commas (tabs) do not.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.formats.contract import RawFile
from penstock.formats.lines.compression import unpacked_head
from penstock.formats.lines.transcript import encoding_of, text_head

DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_RECORDS = 8
_SURE_RECORDS = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """The beginning of what may be a table."""

    text: str
    #: Whether it is all there is; else its last record may be cut.
    whole: bool

    @classmethod
    def of(cls, raw: RawFile, head: bytes, *, strict: bool) -> "Sample":
        """From the first bytes of a file. With ``strict`` a file that is no text throughout has no records."""
        inside = unpacked_head(raw, head)
        # Of a compressed file nobody knows how much more there is.
        whole = len(head) == raw.size_bytes and inside is head
        if b"\0" in inside and encoding_of(inside) == "utf-8":
            return cls("", whole)
        text = text_head(inside)
        if strict and whole and any("\ud800" <= character <= "\udfff" for character in text):
            return cls("", whole)
        return cls(text, whole)

    def records(self, delimiter: str) -> list[list[str]]:
        """The first records, without the last if the sample may end inside it."""
        reader = csv.reader(io.StringIO(self.text, newline=""), delimiter=delimiter)
        try:
            records = [
                record for record, _ in zip(reader, range(_SAMPLE_RECORDS + 1), strict=False) if record
            ]
        except csv.Error:
            return []
        return records[:_SAMPLE_RECORDS] if self.whole or len(records) < 2 else records[:-1]

    def delimiter(self, candidates: Sequence[str] = DELIMITERS) -> str | None:
        """The one that makes a table of it; None if none does."""
        return next((candidate for candidate in candidates if self._fits(candidate)), None)

    def excel_note(self) -> str | None:
        """What separates fields as a first line ``sep=;`` says it to Excel, if there is one."""
        line = self.text.partition("\n")[0].rstrip("\r")
        return line[4] if line.lower().startswith("sep=") and len(line) == 5 else None

    def is_table(self, delimiter: str) -> bool:
        """Whether a file that is called one may be one: the scan says which record is wrong."""
        records = self.records(delimiter)
        if not records or len(set(records[0])) < len(records[0]):
            return False
        if any(len(record) != len(records[0]) for record in records):
            return len(records[0]) > 1
        return len(records[0]) > 1 or not any(mark in records[0][0] for mark in "\t;|")

    def is_surely_table(self, delimiter: str) -> bool:
        """Whether a file of any name is one."""
        records = self.records(delimiter)
        return self._fits(delimiter) and len(records) >= _SURE_RECORDS and all(records[0])

    def _fits(self, delimiter: str) -> bool:
        records = self.records(delimiter)
        widths = {len(record) for record in records}
        return len(widths) == 1 and min(widths) > 1 and len(set(records[0])) == len(records[0])
