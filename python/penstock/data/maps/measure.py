"""Maps in front of a measure: the rows are changed first, and what changed them is part of what was measured."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.data.stages import Map
from penstock.errors import CorruptShard, IndexDamaged, StoreError
from penstock.formats.contract import Row
from penstock.registry import Version
from penstock.registry.columns.measure import (
    Computed,
    Measure,
    NothingToMeasure,
    notes_of,
    read_sample,
    spelled_in,
)


class Mapped:
    """A measure of rows after some maps."""

    def __init__(self, measure: Measure, maps: Sequence[Map], fields: Sequence[str] | None = None) -> None:
        self._measure = measure
        self._maps = tuple(maps)
        #: The fields that maps get, where a recipe chooses some.
        self._fields = fields
        self.name = measure.name
        self.dtype = measure.dtype

    @property
    def payloads(self) -> Mapping[str, str]:
        """Those of the measure."""
        return self._measure.payloads

    def identity(self) -> dict[str, str]:
        """The measure's, and the maps by source text and declared version."""
        maps = msgspec.json.encode([stage.document() for stage in self._maps], order="deterministic")
        chosen = {} if self._fields is None else {"fields": msgspec.json.encode(self._fields).decode()}
        return self._measure.identity() | {"maps": maps.decode()} | chosen

    def read(self, row: Row) -> Any:
        """What is measured of a row after the maps."""
        return self._measure.read(self._changed(row))

    def read_numbered(self, row: Row, number: int) -> Any:
        """The same where the row's number matters."""
        return read_sample(self._measure, self._changed(row), number)

    def _changed(self, row: Row) -> Row:
        """A row after the maps; a map that fails can make nothing of it."""
        if self._fields is not None:
            row = {name: row[name] for name in self._fields if name in row}
        for stage in self._maps:
            try:
                row = stage.called(row)
            except (CorruptShard, IndexDamaged, StoreError, MemoryError):
                raise
            # A user's function may raise anything.
            except Exception as reason:
                raise NothingToMeasure(
                    f"map {stage.name} fails: {type(reason).__name__}: {reason}"
                ) from reason
            if not isinstance(row, dict):
                raise NothingToMeasure(f"map {stage.name} gives {type(row).__name__}, not a row (dict)")
        return row

    def compute(self, samples: list[Any]) -> Computed:
        """As the measure does."""
        return self._measure.compute(samples)

    @property
    def notes(self) -> list[str]:
        """Those of the measure."""
        return notes_of(self._measure)

    def spelled(self, samples: list[Any]) -> int:
        """As the measure counts."""
        return spelled_in(self._measure, samples)

    def payload_bytes(self, version: Version) -> int:
        """As the measure says of rows as they are stored."""
        return self._measure.payload_bytes(version)


def mapped(measure: Measure, maps: Sequence[Map], fields: Sequence[str] | None = None) -> Measure:
    """A measure after maps, if there are any, which get the given fields of a row."""
    return Mapped(measure, maps, fields) if maps else measure
