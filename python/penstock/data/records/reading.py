"""From the samples of a step to a batch of records: fetched by source, mapped, checked, put together.

Nothing here depends on anything but the step's samples, so threads can do it for several steps at once, and whoever asks
for a step again gets the same batch.
"""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import _rust
from penstock.data.batch import origin_of
from penstock.data.mapping import Maps, StageFailed
from penstock.data.records.batch import RecordBatch
from penstock.data.records.stacking import EXACT_MAX, stack_rows
from penstock.data.records.values import ValueUnusable, encode, usable_row
from penstock.data.undecodable import Fault, fault_of
from penstock.errors import PenstockError
from penstock.formats.contract import Row

if TYPE_CHECKING:
    from penstock.data.planning import Plan

#: What stands for a row in its digest when there are no values: padding, and a sample that cannot be decoded.
_EMPTY, _FAULTY = b"", b"undecodable"
#: How many samples are tried to learn the fields of a batch that has none.
_LIKE_MAX = 8


class RecordReader:
    """Makes batches of records. Safe to use from any thread."""

    def __init__(self, plan: "Plan") -> None:
        self._plan = plan
        self._sources = [_RecordSource(plan, number) for number in range(len(plan.prepared))]
        self._like: Mapping[str, Any] | None = None
        self._looked = False
        self._looking = threading.Lock()

    def __call__(self, made: _rust.FeedBatch) -> RecordBatch:
        """The batch of a step."""
        places = [made.origins(row) for row in range(made.rows)]
        rows: list[Row | None] = [None] * made.rows
        encoded = [_EMPTY] * made.rows
        valid = np.zeros(made.rows, dtype=np.uint8)
        faults: list[Fault] = []
        for number, source in enumerate(self._sources):
            mine = [row for row, place in enumerate(places) if place and place[0][2] == number]
            samples = [(places[row][0][3], places[row][0][5]) for row in mine]
            for row, found in zip(mine, source.read(samples), strict=True):
                if isinstance(found, StageFailed):
                    faults.append(self._fault(made, row, found))
                    encoded[row] = _FAULTY
                    continue
                rows[row], encoded[row] = found, encode(found)
                valid[row] = not source.is_masked(places[row][0][3])
        fields = stack_rows(rows, self._row_like() if all(row is None for row in rows) else None)
        return RecordBatch(
            made,
            self._plan,
            {"valid": valid, **fields},
            digest=_rust.digest_rows(made.position, encoded),
            size_bytes=sum(map(len, encoded)),
            faults=sorted(faults, key=lambda fault: fault.row),
        )

    def _fault(self, made: _rust.FeedBatch, row: int, found: StageFailed) -> Fault:
        origin = origin_of(self._plan, made.origins(row)[0])
        return fault_of(row, origin, found, self._plan.recipe.undecodable)

    def _row_like(self) -> Mapping[str, Any] | None:
        """A row to learn fields from when a lane has padding alone: a lane must not lack the fields that others have."""
        with self._looking:
            if not self._looked:
                source = self._sources[0]
                samples = [(sample, 0) for sample in range(min(_LIKE_MAX, source.rows))]
                found = source.read(samples)
                self._like = next((row for row in found if not isinstance(row, StageFailed)), None)
                self._looked = True
            return self._like


class _RecordSource:
    """The samples of one source, decoded and mapped."""

    def __init__(self, plan: "Plan", number: int) -> None:
        prepared = plan.prepared[number]
        self._version = prepared.version
        self._alias = prepared.source.alias
        self._masked = plan.skips.masked
        self._maps = Maps(plan.recipe, self._alias, self._version.digest)
        #: Fields of numbers with and without a fraction; here 1 is 1.0, whatever else a batch has.
        self._floats = (
            frozenset()
            if self._maps
            else frozenset(field.name for field in self._version.schema if field.kind == "float")
        )

    @property
    def rows(self) -> int:
        return self._version.rows

    def is_masked(self, sample: int) -> bool:
        """Whether the skips mask a sample."""
        return (self._alias, sample) in self._masked

    def read(self, samples: list[tuple[int, int]]) -> list[Row | StageFailed]:
        """Rows, given as sample and epoch; where one cannot be decoded, why."""
        if not samples:
            return []
        fetched = self._fetched([sample for sample, _ in samples])
        return [self._mapped(row, *place) for row, place in zip(fetched, samples, strict=True)]

    def _fetched(self, samples: list[int]) -> list[Row | StageFailed]:
        try:
            return list(self._version.take(samples, parallel=False))
        except (PenstockError, OSError, MemoryError):
            raise
        except Exception:  # noqa: BLE001 - something in them cannot be decoded; one by one shows what
            if len(samples) > 1:
                return [self._fetched([sample])[0] for sample in samples]
        # What cannot be decoded may have changed since it was checked; then that is what is wrong with it.
        _rust.look_again()
        try:
            return list(self._version.take(samples))
        except (PenstockError, OSError, MemoryError):
            raise
        except Exception as reason:  # noqa: BLE001 - it is kept as the reason
            return [StageFailed(f"reading {self._version.manifest.format}", reason)]

    def _mapped(self, row: Row | StageFailed, sample: int, epoch: int) -> Row | StageFailed:
        if isinstance(row, StageFailed):
            return row
        try:
            mapped = self._maps.row(row, epoch=epoch, sample=sample)
            return self._as_floats(usable_row(mapped))
        except ValueUnusable as reason:
            return StageFailed("the record", reason)
        except StageFailed as failed:
            return failed

    def _as_floats(self, row: Row) -> Row:
        for name in self._floats:
            value = row.get(name)
            if type(value) is int and -EXACT_MAX <= value <= EXACT_MAX:
                row[name] = float(value)
        return row
