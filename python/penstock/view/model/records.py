"""A batch of records as people look at it: rows with fields by kind, and where each came from."""

from typing import Any, Literal, cast

from penstock.data.feed.batch import Origin
from penstock.data.feed.lane import Lane
from penstock.data.records import RecordBatch
from penstock.errors import RowOutOfRange, UsageError
from penstock.view.address import Address
from penstock.view.model.commands import commands_of
from penstock.view.model.fields import TEXT_MAX, FieldView, field_of
from penstock.view.model.origins import origin_facts
from penstock.view.wire.batch_answers import RecordBatchFacts, RecordRow, UndecodableSample


class RecordView:
    """A batch of records."""

    kind: Literal["records"] = "records"

    def __init__(self, batch: RecordBatch, *, address: Address, lane: Lane) -> None:
        self.batch = batch
        self.address = address
        self.lane = lane
        self.rows = batch.rows
        self.step = batch.step
        self.digest = batch.digest

    def facts(self) -> RecordBatchFacts:
        """What is known of the batch without its values."""
        batch = self.batch
        return {
            "kind": self.kind,
            "address": str(self.address),
            **commands_of(self.address),
            "step": batch.step,
            "lane": str(self.lane),
            "digest": batch.digest,
            "rows": batch.rows,
            "padding": batch.padding,
            "fields": list(batch),
            "undecodable": [cast(UndecodableSample, fault.to_json()) for fault in batch.faults],
        }

    def window(self, first: int, stop: int, *, text_max: int = TEXT_MAX) -> list[RecordRow]:
        """Rows with their fields and origins, as plain values; rows outside of the batch are left out."""
        return [
            {
                "row": row,
                "valid": bool(self.batch["valid"][row]),
                "fields": [field.to_json() for field in self.fields(row, text_max=text_max)],
                "origin": [origin_facts(origin) for origin in self.origin(row)],
            }
            for row in range(max(0, first), min(stop, self.rows))
        ]

    def fields(self, row: int, *, text_max: int = TEXT_MAX) -> list[FieldView]:
        """The fields of a row."""
        self._check(row)
        names = [name for name in self.batch if name != "valid"]
        return [field_of(name, self.batch[name][row], text_max=text_max) for name in names]

    def value(self, row: int, name: str) -> Any:
        """One whole value."""
        self._check(row)
        if name not in self.batch:
            raise UsageError(f"the batch has no field {name!r}", hint=f"it has {', '.join(self.batch)}")
        return self.batch[name][row]

    def origin(self, row: int) -> list[Origin]:
        """Where a row came from; nothing for padding."""
        self._check(row)
        return self.batch.origin(row)

    def _check(self, row: int) -> None:
        if not 0 <= row < self.rows:
            raise RowOutOfRange(row=row, rows=self.rows)
