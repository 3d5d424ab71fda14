"""From the samples of a step to a batch of records: fetched by source, mapped, checked, put together.

Nothing here depends on anything but the step's samples, so threads can do it for several steps at once, and whoever asks
for a step again gets the same batch.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from penstock import _rust
from penstock.data.feed.batch import Finisher, origin_of
from penstock.data.feed.undecodable import Fault, fault_of
from penstock.data.maps.rows import Maps, StageFailed
from penstock.data.records.record_batch import RecordBatch
from penstock.data.records.stack import EXACT_MAX, stack_rows
from penstock.data.records.values import ValueUnusable, digest_of, usable, usable_row
from penstock.errors import PenstockError
from penstock.formats.contract import Row

if TYPE_CHECKING:
    from penstock.data.plan.plan import Plan

Numbers = npt.NDArray[np.int64]
#: What stands for a row in its digest when there are no values: padding, and a sample that cannot be decoded.
_EMPTY, _FAULTY = b"", b"undecodable"
#: How many samples are tried to learn the fields of a batch that has none.
_LIKE_MAX = 8


class RecordReader(Finisher):
    """Makes batches of records. Safe to use from any thread."""

    def __init__(self, plan: "Plan") -> None:
        self._plan = plan
        self._sources = [_RecordSource(plan, number) for number in range(len(plan.prepared))]
        #: Fields that all sources have because the recipe names them; what a map gives is not known.
        self._chosen: tuple[str, ...] = ()
        if all(source.fields is not None and not source.maps for source in self._sources):
            self._chosen = tuple(sorted({name for source in self._sources for name in source.fields or ()}))
        self._like: Mapping[str, Any] | None = None
        self._looked = False
        self._looking = threading.Lock()

    def map_s(self) -> float:
        """Seconds that all threads have spent in maps of the recipe."""
        return sum(source.maps.busy_s for source in self._sources)

    def __call__(self, rust_batch: _rust.FeedBatch) -> RecordBatch:
        """The batch of a step."""
        places = np.frombuffer(rust_batch.places(), dtype=np.uint64).reshape(-1, 4).astype(np.int64)
        rows: list[Row | None] = [None] * rust_batch.rows
        hashed: list[Row | bytes] = [_EMPTY] * rust_batch.rows
        valid = np.zeros(rust_batch.rows, dtype=np.uint8)
        faults: list[Fault] = []
        for number, source in enumerate(self._sources):
            mine = places[places[:, 1] == number]
            for row, sample, outcome in zip(
                mine[:, 0].tolist(), mine[:, 2].tolist(), source.read(mine[:, 2], mine[:, 3]), strict=True
            ):
                if isinstance(outcome, StageFailed):
                    faults.append(self._fault(rust_batch, row, outcome))
                    hashed[row] = _FAULTY
                    continue
                rows[row] = hashed[row] = outcome
                valid[row] = 1
                if source.masks and source.is_masked(sample):
                    valid[row] = 0
        like = self._row_like() if all(row is None for row in rows) else None
        fields = stack_rows(rows, like, self._chosen)
        digest, size_bytes = digest_of(rust_batch.position, hashed)
        return RecordBatch(
            rust_batch,
            self._plan,
            {"valid": valid, **fields},
            digest=digest,
            size_bytes=size_bytes,
            faults=sorted(faults, key=lambda fault: fault.row),
        )

    def _fault(self, rust_batch: _rust.FeedBatch, row: int, failure: StageFailed) -> Fault:
        origin = origin_of(self._plan, rust_batch.origins(row)[0])
        return fault_of(row, origin, failure, self._plan.recipe.undecodable)

    def _row_like(self) -> Mapping[str, Any] | None:
        """A row to learn fields from when a lane has padding alone: a lane must not lack the fields that others have."""
        with self._looking:
            if not self._looked:
                source = self._sources[0]
                samples = np.arange(min(_LIKE_MAX, source.rows))
                rows = source.read(samples, np.zeros_like(samples))
                self._like = next((row for row in rows if not isinstance(row, StageFailed)), None)
                self._looked = True
            return self._like


class _RecordSource:
    """The samples of one source, decoded and mapped."""

    def __init__(self, plan: "Plan", number: int) -> None:
        prepared = plan.prepared[number]
        self._version = prepared.version
        self.fields = plan.recipe.fields_of(prepared.source)
        if self.fields is not None:
            self._version = self._version.accessed(replace(self._version.access, fields=self.fields))
        self._alias = prepared.source.alias
        self._masked = plan.skips.masked
        self.maps = Maps(plan.recipe, self._alias, self._version.digest)
        #: Fields of numbers with and without a fraction; here 1 is 1.0, whatever else a batch has.
        self._floats = (
            frozenset()
            if self.maps
            else frozenset(
                field.name
                for field in self._version.schema
                if field.kind == "float" and (self.fields is None or field.name in self.fields)
            )
        )

    @property
    def rows(self) -> int:
        return self._version.rows

    @property
    def masks(self) -> bool:
        """Whether the skips mask any sample at all."""
        return bool(self._masked)

    def is_masked(self, sample: int) -> bool:
        """Whether the skips mask a sample."""
        return (self._alias, sample) in self._masked

    def read(self, samples: Numbers, epochs: Numbers) -> list[Row | StageFailed]:
        """Rows of samples, each in an epoch; where one cannot be decoded, why."""
        if not len(samples):
            return []
        fetched = self._fetched(samples)
        if not self.maps:
            return [self._kept(row) for row in fetched]
        places = zip(samples.tolist(), epochs.tolist(), strict=True)
        return [self._mapped(row, *place) for row, place in zip(fetched, places, strict=True)]

    def _fetched(self, samples: Numbers) -> list[Row | StageFailed]:
        try:
            return list(self._version.take(samples, parallel=False))
        except (PenstockError, OSError, MemoryError):
            raise
        except Exception as reason:  # noqa: BLE001 - something in them cannot be decoded; one by one shows what
            if len(samples) > 1:
                return [self._fetched(samples[at : at + 1])[0] for at in range(len(samples))]
            return [StageFailed(f"reading {self._version.manifest.format}", reason)]

    def _mapped(self, row: Row | StageFailed, sample: int, epoch: int) -> Row | StageFailed:
        if isinstance(row, StageFailed):
            return row
        try:
            # What a map gives may belong to the map, or to other rows.
            return self._usable(self.maps.row(row, epoch=epoch, sample=sample), fresh=False)
        except StageFailed as failed:
            return failed

    def _kept(self, row: Row | StageFailed) -> Row | StageFailed:
        """A row that a format has just decoded; nearly always it is usable as it is, which is all that is looked at here."""
        kept = None if isinstance(row, StageFailed) else _rust.usable_row(row, True, usable)
        if kept is None:
            return self._usable(row, fresh=True)
        for name in self._floats:
            if type(kept.get(name)) is int:
                return self._as_floats(kept)
        return kept

    def _usable(self, row: Any, *, fresh: bool) -> Row | StageFailed:
        if isinstance(row, StageFailed):
            return row
        try:
            return self._as_floats(usable_row(row, fresh=fresh))
        except ValueUnusable as reason:
            return StageFailed("the record", reason)

    def _as_floats(self, row: Row) -> Row:
        for name in self._floats:
            value = row.get(name)
            if type(value) is int and -EXACT_MAX <= value <= EXACT_MAX:
                row[name] = float(value)
        return row
