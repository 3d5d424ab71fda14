"""A source that grows: its eras are measured, planned and handed over one after another.

An era that is finished has a record, ``eras/<key>.json``: how many packs it has, and which plan table and which derived versions
belong to it. The key is known before anything is measured, so finding a finished era is one lookup, and opening a feed far
into a version costs as much per era as at its beginning. Everything that decides order follows from that key and from
values of rows; never from who measured them, or when.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock._rust import digest
from penstock.data.eras.cut import Era, EraIdentity, EraSizes, eras_of
from penstock.data.maps.measure import mapped
from penstock.data.maps.rows import is_drawn
from penstock.data.plan.filter_column import FilterColumn
from penstock.data.plan.row_filter import bind_filter
from penstock.data.plan.samples import LEFT_OUT_MAX, measure_samples, token_measure
from penstock.data.plan.table_cache import PLANNER, Packing, whole_table
from penstock.data.plan.to_rust import part_values
from penstock.data.recipe.recipe import Recipe, Source
from penstock.data.stages import Chat, Filter, Map, Pack, Pad, Stage, Tokenize
from penstock.errors import ObjectMissing, RecipeInvalid, SourceEmpty, TooManyUndecodable
from penstock.formats.contract import Row
from penstock.registry import Registry, Version
from penstock.registry.columns.column import column_key
from penstock.registry.columns.measure import (
    Computed,
    Limits,
    Measure,
    Work,
    measure_piece,
    notes_of,
    read_sample,
    spelled_in,
)
from penstock.registry.scan.scan import object_name

if TYPE_CHECKING:
    from penstock._rust.plan import PartPlan


class EraRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finished era."""

    packs: int
    #: Digest of its plan table, and addresses of the derived versions; empty when no row of it survives.
    table: str = ""
    tokens: str = ""
    loss: str = ""
    #: Samples that nothing could be made of and that the recipe masks.
    undecodable: int = 0


@dataclass(frozen=True, slots=True)
class Grown:
    """A finished era, ready to be read."""

    packs: int
    #: As the Rust side takes it.
    part: "PartPlan"


@dataclass(frozen=True)
class EraSource:
    """A source with its eras."""

    recipe: Recipe
    source: Source
    version: Version
    registry: Registry
    packing: Packing
    #: Tokens per row.
    length: int
    sizes: EraSizes

    @property
    def alias(self) -> str:
        """What the recipe calls it."""
        return self.source.alias

    @cached_property
    def eras(self) -> tuple[Era, ...]:
        """In the order in which an epoch reads them."""
        return eras_of(self.version, shuffled=self._shuffled, sizes=self.sizes)

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """What is measured of every row, in the order of the stages."""
        return measures_of(self.recipe.stages_of(self.source), self.version)

    @cached_property
    def identity(self) -> EraIdentity:
        """What all orders follow from, apart from the seed."""
        split = self.source.split
        chosen = () if split == "all" else ({"split": f"{split} {self.source.held_share!r}"},)
        measured = tuple(measure.identity() for measure in self.measures)
        return EraIdentity(self.version.digest, (*measured, *chosen), self.sizes, self._shuffled)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Numpy type of the tokens."""
        measure = self.measures[-1]
        return np.dtype(measure.payloads[measure.name])

    @property
    def masked(self) -> bool:
        """Whether it says which tokens count in the loss."""
        return "loss" in self.measures[-1].payloads

    def find(self, number: int) -> Grown | None:
        """An era that somebody has finished."""
        record = self._record(number)
        return None if record is None else self._grown(number, record)

    def measure_slice(
        self, number: int, place: int, pool: ThreadPoolExecutor, check: Callable[[], None]
    ) -> None:
        """Measure all that is needed of one slice of an era, on the threads of a pool; finds what was measured before."""
        pieces = self.eras[number].pieces
        for at, measure in enumerate(self.measures):
            key = column_key(self.version.digest, measure.identity(), pieces)
            work = Work(
                version=self.version,
                measure=_Interruptible(measure, check),
                store=self.registry.store,
                place=f"columns/{key}",
                pieces=pieces,
                limits=Limits(undecodable_max=self._borne(at)),
            )
            measure_piece(work, place, pool)

    def finish(self, number: int) -> Grown:
        """Plan an era whose slices are measured, and keep its record."""
        record = self._planned(number)
        self.registry.store.put_if_absent(self._name(number), msgspec.json.encode(record))
        return self._grown(number, record)

    def _planned(self, number: int) -> EraRecord:
        pieces = self.eras[number].pieces
        try:
            samples = measure_samples(
                self.recipe, self.source, self.version, self.registry, None, pieces=pieces
            )
            table = whole_table(
                self.registry, samples, self.packing, self.length, source=self.identity.of_era(number)
            )
        except SourceEmpty:
            return EraRecord(packs=0)
        return EraRecord(
            packs=table.packs,
            table=table.table,
            tokens=samples.tokens.address,
            loss="" if samples.loss is None else samples.loss.address,
            undecodable=len(samples.undecodable),
        )

    def _grown(self, number: int, record: EraRecord) -> Grown:
        self._check_undecodable(number, record)
        registry, rows = self.registry, _runs(self.eras[number])
        part = part_values(
            registry.store,
            digest=self.identity.of_era(number),
            tokens=registry.resolve(record.tokens) if record.tokens else None,
            loss=registry.resolve(record.loss) if record.loss else None,
            tables=[record.table],
            rows=rows,
            separator=self.packing.rust_separator(),
        )
        return Grown(record.packs, part)

    def _check_undecodable(self, number: int, last: EraRecord) -> None:
        """The recipe's limit holds for all eras up to this one together, whoever measured them and bore more."""
        if not last.undecodable:
            return
        if self.recipe.undecodable == "raise":
            # Looks at all values again and raises, with the sample and the reason.
            self._planned(number)
        before = [record.undecodable for era in range(number) if (record := self._record(era)) is not None]
        if sum(before) + last.undecodable > self.recipe.undecodable_max:
            raise TooManyUndecodable(
                source=self.alias, limit=self.recipe.undecodable_max, last=f"in era {number + 1}"
            )

    def _record(self, number: int) -> EraRecord | None:
        store = self.registry.store
        try:
            record = msgspec.json.decode(store.get(self._name(number)), type=EraRecord)
            if record.table:
                store.describe(object_name(record.table))
        except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return record

    def _name(self, number: int) -> str:
        parts = (PLANNER, self.identity.of_era(number), self.length, self.packing.document())
        return f"eras/{digest(msgspec.json.encode(parts, order='deterministic')).removeprefix('b3:')}.json"

    def _borne(self, at: int) -> int:
        """How many rows a measure may fail on: what a filter or the split leaves out does not count, and is known later."""
        limit = self.recipe.undecodable_max if self.recipe.undecodable == "mask" else 0
        follows = at > 0 or (self.source.split != "all" and at == len(self.measures) - 1)
        return max(limit, LEFT_OUT_MAX) if follows else limit

    @property
    def _shuffled(self) -> bool:
        return self.recipe.shuffle != "none"


def growing(
    recipe: Recipe, source: Source, version: Version, registry: Registry, sizes: EraSizes | None
) -> EraSource | None:
    """A source era by era, if the recipe says so and there is anything worth it: tokens that have to be made."""
    stages = recipe.stages_of(source)
    if recipe.measure != "eras" or not any(isinstance(stage, Tokenize | Chat) for stage in stages):
        return None
    shape = next((stage for stage in stages if isinstance(stage, Pack | Pad)), None)
    if shape is None:
        raise RecipeInvalid(
            field="stages", reason=f"{source.alias} is not packed", hint="add a Pack or Pad stage"
        )
    drawn = [candidate.alias for candidate in recipe.sources if is_drawn(recipe.stages_of(candidate))]
    if drawn:
        reason = f"{', '.join(drawn)} has random maps of tokens, which need all tokens in one place"
        raise RecipeInvalid(field="measure", reason=reason, hint='measure = "all"')
    packing = Packing.of(source.alias, stages, recipe.shuffle)
    return EraSource(recipe, source, version, registry, packing, shape.lengths[0][1], sizes or EraSizes())


def measures_of(stages: Sequence[Stage], version: Version) -> tuple[Measure, ...]:
    """What stages measure of a version: verdicts of filters and then tokens, each after the maps that come before it."""
    measures = []
    for at, stage in enumerate(stages):
        maps = [earlier for earlier in stages[:at] if isinstance(earlier, Map)]
        if isinstance(stage, Filter):
            judge = bind_filter(stage.expression, version, mapped=bool(maps))
            measures.append(mapped(FilterColumn(judge), maps))
        elif isinstance(stage, Tokenize | Chat):
            measures.append(mapped(token_measure(stage), maps))
    return tuple(measures)


def _runs(era: Era) -> list[tuple[int, int]]:
    """Where the rows of an era begin in the version: (row of the era, row of the version) for each slice."""
    runs = []
    row = 0
    for first, stop in era.pieces:
        runs.append((row, first))
        row += stop - first
    return runs


class _Interruptible:
    """A measure that asks before every portion of rows whether it should go on."""

    def __init__(self, measure: Measure, check: Callable[[], None]) -> None:
        self._measure = measure
        self._check = check
        self.name = measure.name
        self.dtype = measure.dtype

    @property
    def payloads(self) -> Mapping[str, str]:
        """Those of the measure."""
        return self._measure.payloads

    def identity(self) -> dict[str, str]:
        """That of the measure: what it is asked in between changes no value."""
        return self._measure.identity()

    def read(self, row: Row) -> Any:
        """As the measure does."""
        return self._measure.read(row)

    def read_numbered(self, row: Row, number: int) -> Any:
        """The same where the row's number matters."""
        return read_sample(self._measure, row, number)

    def compute(self, samples: list[Any]) -> Computed:
        """As the measure does, unless the work should end."""
        self._check()
        return self._measure.compute(samples)

    @property
    def notes(self) -> list[str]:
        """Those of the measure."""
        return notes_of(self._measure)

    def spelled(self, samples: list[Any]) -> int:
        """As the measure counts."""
        return spelled_in(self._measure, samples)

    def payload_bytes(self, version: Version) -> int:
        """As the measure says."""
        return self._measure.payload_bytes(version)
