"""Rows of a version as people look at them: pages of rows, fields by kind, one row with all of it.

A page costs what it shows: rows are read where they lie, so row 1,000,000,000 costs what row 0 costs.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.errors import RowOutOfRange, UsageError
from penstock.registry import Version
from penstock.view.address import VersionAddress
from penstock.view.model.commands import commands_of
from penstock.view.model.fields import TEXT_MAX, FieldView, field_of, plain
from penstock.view.wire.batch_answers import StoredRow

#: The most rows of a page.
PAGE_MAX = 1000
_SHORT = 200


@dataclass(frozen=True, slots=True)
class RowView:
    """One row of a version."""

    address: VersionAddress
    number: int
    #: The file that holds it, its number there, and its bytes where it has them.
    shard: str
    place: int
    byte_range: tuple[int, int] | None
    fields: list[FieldView]

    def to_json(self) -> StoredRow:
        """As plain values."""
        return {
            "address": str(self.address),
            **commands_of(self.address),
            "row": self.number,
            "shard": self.shard,
            "place": self.place,
            "byte_range": self.byte_range,
            "fields": [field.to_json() for field in self.fields],
        }


class VersionView:
    """A version."""

    kind = "version"

    def __init__(self, version: Version) -> None:
        self.version = version
        self.address = VersionAddress(version.address)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.version.rows

    def facts(self) -> dict[str, Any]:
        """What is known of the version without reading a row."""
        version = self.version
        return {
            "kind": self.kind,
            "address": str(self.address),
            **commands_of(self.address),
            "digest": version.digest,
            "format": version.manifest.format,
            "rows": version.rows,
            "bytes": version.bytes,
            "created": version.record.created,
            "about": msgspec.to_builtins(version.about),
            "schema": msgspec.to_builtins(version.schema),
            "shards": len(version.manifest.shards),
            "skipped": len(version.manifest.skipped),
        }

    def page(self, first: int = 0, count: int = 50, *, text_max: int = _SHORT) -> list[RowView]:
        """Rows from ``first`` on, with short previews."""
        if not 0 < count <= PAGE_MAX:
            raise UsageError(f"a page of {count:,} rows cannot be shown", hint=f"ask for 1 to {PAGE_MAX:,}")
        if first < 0 or first >= max(1, self.rows):
            raise RowOutOfRange(row=first, rows=self.rows)
        return self.chosen(range(first, min(self.rows, first + count)), text_max=text_max)

    def chosen(self, numbers: "range | list[int]", *, text_max: int = _SHORT) -> list[RowView]:
        """Some rows."""
        rows = self.version.take(list(numbers))
        return [self._row(number, row, text_max) for number, row in zip(numbers, rows, strict=True)]

    def row(self, number: int, *, text_max: int = TEXT_MAX) -> RowView:
        """One row, with long previews."""
        if not 0 <= number < self.rows:
            raise RowOutOfRange(row=number, rows=self.rows)
        return self._row(number, self.version[number], text_max)

    def value(self, number: int, name: str) -> Any:
        """One whole value."""
        if not 0 <= number < self.rows:
            raise RowOutOfRange(row=number, rows=self.rows)
        row = self.version[number]
        if name not in row:
            raise UsageError(f"row {number} has no field {name!r}", hint=f"it has {', '.join(row)}")
        return row[name]

    def documents(self, first: int, count: int) -> list[dict[str, Any]]:
        """Whole rows as plain values, for ``--json``."""
        stop = min(self.rows, first + count)
        rows = self.version.take(range(first, stop)) if first < stop else []
        return [{"row": first + at, **plain(row)} for at, row in enumerate(rows)]

    def _row(self, number: int, row: dict[str, Any], text_max: int) -> RowView:
        shard, place = self.version.shard_of(number)
        address = VersionAddress(self.version.address, number)
        fields = [field_of(name, value, text_max=text_max) for name, value in row.items()]
        return RowView(address, number, shard.name, place, self.version.byte_range(shard, place), fields)
