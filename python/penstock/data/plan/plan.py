"""From a recipe to what a feed reads: versions pinned, columns measured, plan tables built, each once.

Everything that decides order is a measured column of a version. What is missing is measured now, in parallel and
resumable; what was measured before is found by its key. The result is pure data: a feed made from it does no further
deciding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from penstock import events
from penstock._rust import digest
from penstock.data.eras.cut import EraSizes
from penstock.data.eras.source import EraSource, growing
from penstock.data.maps.rows import drawn_length, is_drawn
from penstock.data.plan.phases import Phase, merged, plan_phases
from penstock.data.plan.samples import PlanWatch, Samples, measure_samples
from penstock.data.plan.table_cache import PLANNER, Packing, PlanTable, whole_table
from penstock.data.plan.token_layout import row_length, stored_dtype
from penstock.data.recipe.recipe import Recipe, Source
from penstock.data.recipe.skips import Skips
from penstock.data.records.choice import reads_records
from penstock.data.stages import Pack, Pad, Stage
from penstock.errors import RecipeInvalid
from penstock.registry import Registry, Version
from penstock.registry.columns.column import Undecodable
from penstock.registry.columns.measure import notes_of


@dataclass(frozen=True, slots=True)
class Prepared:
    """One source, ready to be read."""

    source: Source
    #: The version that the recipe names.
    version: Version
    #: The version that holds the tokens: the same, or one derived from it with equal row numbers.
    tokens: Version
    #: Numpy type of the stored tokens.
    dtype: np.dtype[Any]
    packing: Packing
    #: One per length of rows, in order.
    phases: tuple[Phase, ...]
    #: The version that says which tokens count in the loss, one byte each; None when all do.
    loss: Version | None = None
    #: Samples that nothing could be made of when they were measured; they count as empty.
    undecodable: tuple[Undecodable, ...] = ()
    #: What users should know of its samples: what was switched off, what their text spells.
    notes: tuple[str, ...] = ()
    #: What padding is.
    pad: int = 0
    #: Whether its samples are no tokens; then each is a row, and somebody else than the plan reads it.
    records: bool = False
    #: The length that is planned for every sample because a random map may change it; None where samples keep theirs.
    drawn_length: int | None = None
    #: Its eras, where it is measured while it is read; then ``tokens`` is the version itself and there are no tables yet.
    growing: EraSource | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe with everything measured."""

    recipe: Recipe
    registry: Registry
    prepared: tuple[Prepared, ...]
    skips: Skips
    #: Told of what is measured while a feed reads.
    watch: PlanWatch | None = None
    #: Numpy type of a batch's tokens: the widest of the sources'.
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        widest = max((prepared.dtype for prepared in self.prepared), key=lambda dtype: dtype.itemsize)
        object.__setattr__(self, "dtype", widest)

    @property
    def versions(self) -> dict[str, str]:
        """Alias to version digest."""
        return {prepared.source.alias: prepared.version.digest for prepared in self.prepared}

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """Tokens of a row, from which step on."""
        return [(phase.step, phase.length) for phase in self.prepared[0].phases]

    @property
    def records(self) -> bool:
        """Whether samples are no tokens."""
        return self.prepared[0].records

    @property
    def drawn(self) -> bool:
        """Whether random maps change tokens."""
        return not self.records and any(
            is_drawn(self.recipe.stages_of(prepared.source)) for prepared in self.prepared
        )

    def prefix(self, step: int) -> str:
        """The digest of everything that the steps before ``step`` depend on, as the recipe says it."""
        return self.recipe.prefix(self.versions, step)

    def digest(self, step: int) -> str:
        """The digest of the tables and token versions behind the steps before ``step``."""
        used = {source["alias"] for source in self.recipe.document(self.versions, until_step=step)["sources"]}
        parts: list[tuple[Any, ...]] = []
        for prepared in self.prepared:
            if prepared.source.alias in used and prepared.growing:
                parts.append((prepared.source.alias, prepared.growing.identity.digest))
            elif prepared.source.alias in used:
                first, *later = prepared.phases
                begun = [phase.tables for phase in later if phase.step < step]
                part = (prepared.source.alias, prepared.tokens.digest, first.whole.table, first.whole.packs)
                # What came later counts only where it is used, so that cursors from before stay good.
                loss = () if prepared.loss is None else (prepared.loss.digest,)
                parts.append((*part, *((begun,) if begun else ()), *loss))
        return digest(msgspec.json.encode((PLANNER, parts), order="deterministic"))


def prepare(
    recipe: Recipe,
    registry: Registry,
    watch: PlanWatch | None = None,
    *,
    skips: Skips | None = None,
    sizes: EraSizes | None = None,
) -> Plan:
    """Pin, measure and plan every source of a recipe; those that grow are only laid out. ``sizes`` of eras are for tests."""
    with events.span("data.prepare", sources=len(recipe.sources)):
        prepared = tuple(
            _prepare_growing(recipe, source, registry, sizes)
            or _prepare_source(recipe, source, registry, watch)
            for source in recipe.sources
        )
        _check_kinds(prepared)
        _check_row_lengths(prepared)
        _check_dtypes(prepared)
        phased = tuple(plan_phases(recipe, registry, prepared))
    return Plan(recipe, registry, phased, skips or Skips(), watch)


def _prepare_growing(
    recipe: Recipe, source: Source, registry: Registry, sizes: EraSizes | None
) -> Prepared | None:
    """A source that is measured while it is read, or None when it is not one."""
    if recipe.measure == "all":
        return None
    version = registry.resolve(source.name)
    era_source = growing(recipe, source, version, registry, sizes)
    if era_source is None:
        return None
    phases = (Phase(0, era_source.length, PlanTable("", 0)),)
    return Prepared(
        source,
        version,
        version,
        era_source.dtype,
        era_source.packing,
        phases,
        notes=tuple(notes_of(era_source.measures[-1])),
        pad=_pad(recipe, source),
        growing=era_source,
    )


def _pad(recipe: Recipe, source: Source) -> int:
    shape = next((stage for stage in recipe.stages_of(source) if isinstance(stage, Pack | Pad)), None)
    return shape.token if isinstance(shape, Pad) else shape.pad if shape else 0


def _check_row_lengths(prepared: tuple[Prepared, ...]) -> None:
    schedules = [[(phase.step, phase.length) for phase in entry.phases] for entry in prepared]
    if any(schedule != schedules[0] for schedule in schedules):
        shown = ", ".join(
            f"{entry.source.alias} {schedule[0][1] if len(schedule) == 1 else schedule}"
            for entry, schedule in zip(prepared, schedules, strict=True)
        )
        raise RecipeInvalid(
            field="sources", reason=f"rows of one batch have one length, but there are {shown}"
        )


def _check_kinds(prepared: tuple[Prepared, ...]) -> None:
    tokens = [entry.source.alias for entry in prepared if not entry.records]
    records = [entry.source.alias for entry in prepared if entry.records]
    if tokens and records:
        reason = f"{', '.join(tokens)} give tokens, but {', '.join(records)} are read as records"
        raise RecipeInvalid(
            field="sources", reason=reason, hint="tokenise and pack all sources, or none of them"
        )


def _check_dtypes(prepared: tuple[Prepared, ...]) -> None:
    """Narrow tokens are widened with zeros, which would make other numbers of those with a sign."""
    widest = max((item.dtype for item in prepared), key=lambda dtype: dtype.itemsize)
    for entry in prepared:
        if entry.pad > np.iinfo(widest).max:
            reason = f"the padding of {entry.source.alias}, {entry.pad}, does not fit into {widest}"
            raise RecipeInvalid(field="pad", reason=reason)
        if entry.dtype != widest and (entry.dtype.kind == "i" or entry.dtype.itemsize == widest.itemsize):
            reason = f"{entry.source.alias} holds {entry.dtype}, which cannot be joined with {widest}"
            raise RecipeInvalid(
                field="sources", reason=reason, hint="store the tokens of all sources in one type"
            )


def _prepare_source(recipe: Recipe, source: Source, registry: Registry, watch: PlanWatch | None) -> Prepared:
    stages = recipe.stages_of(source)
    version = registry.resolve(source.name)
    samples = measure_samples(recipe, source, version, registry, watch)
    if reads_records(stages, version, recipe.fields_of(source)):
        return _prepare_records(recipe, source, registry, samples)
    tokens, dtype = samples.tokens, stored_dtype(samples.tokens)
    shape = next((stage for stage in stages if isinstance(stage, Pack | Pad)), None)
    packing = Packing.of(source.alias, stages, recipe.shuffle)
    if shape is None:
        if samples.mask is not None or packing.truncate is not None:
            raise RecipeInvalid(
                field="stages",
                reason=f"{source.alias} is filtered, split or truncated but not packed",
                hint="add a Pack stage",
            )
        if drawn_length(stages) is not None:
            reason = f"{source.alias} is not packed, so its rows have one length"
            raise RecipeInvalid(field="length_max", reason=reason, hint="add a Pack or Pad stage")
        phases: tuple[Phase, ...] = (
            Phase(0, row_length(source.alias, tokens, dtype), PlanTable("", tokens.rows)),
        )
        return Prepared(source, version, tokens, dtype, packing, phases)
    _check_separator(source.alias, packing, stages, dtype)
    planned, joined = _planned(samples, packing, stages)
    phases = tuple(
        Phase(step, length, whole_table(registry, planned, joined, length))
        for step, length in merged(shape.lengths)
    )
    drawn = drawn_length(stages)
    return Prepared(
        source,
        version,
        tokens,
        dtype,
        packing,
        phases,
        loss=samples.loss,
        undecodable=samples.undecodable,
        notes=samples.notes,
        pad=_pad(recipe, source),
        drawn_length=drawn,
    )


def _check_separator(alias: str, packing: Packing, stages: Sequence[Stage], dtype: np.dtype[Any]) -> None:
    """That the token after documents can be stored as theirs are, and that nobody would map it away."""
    if packing.separator is None:
        return
    if is_drawn(stages):
        reason = f"{alias} has random maps of tokens, which see no separator"
        raise RecipeInvalid(field="separator", reason=reason, hint="end documents with Tokenize(…, eos=…)")
    if packing.separator > np.iinfo(dtype).max:
        reason = f"the separator of {alias}, {packing.separator}, does not fit into {dtype}"
        raise RecipeInvalid(field="separator", reason=reason)


def _planned(samples: Samples, packing: Packing, stages: Sequence[Stage]) -> tuple[Samples, Packing]:
    """Where a random map may change lengths, every sample is planned with the most that it may have, whatever it has now."""
    length = drawn_length(stages)
    if length is None:
        return samples, packing
    if packing.policy == "crop":
        reason = f"crops of {packing.alias} begin anywhere in a sample, whose length a map would change"
        raise RecipeInvalid(
            field="length_max", reason=reason, hint="leave length_max out, or pack by concat or fit"
        )
    if samples.loss is not None:
        reason = f"{packing.alias} says which tokens count in the loss, which a map that changes lengths would undo"
        raise RecipeInvalid(field="length_max", reason=reason, hint="leave length_max out")
    rows, verdicts = samples.tokens.rows, [*samples.verdicts, f"drawn {length}"]
    drawn = replace(samples, lengths=lambda: np.full(rows, length, dtype=np.uint32), verdicts=verdicts)
    return drawn, replace(packing, truncate=None)


def _prepare_records(recipe: Recipe, source: Source, registry: Registry, samples: Samples) -> Prepared:
    """A record is a pack of one sample; where all samples are read, no table is needed to find it."""
    version, packing = samples.tokens, Packing(source.alias, "concat", recipe.shuffle)
    table = PlanTable("", version.rows)
    if samples.mask is not None:
        single = replace(samples, lengths=lambda: np.ones(version.rows, dtype=np.uint32))
        table = whole_table(registry, single, packing, 1)
    undecodable, phases = samples.undecodable, (Phase(0, 1, table),)
    return Prepared(
        source, version, version, np.dtype(np.uint8), packing, phases, undecodable=undecodable, records=True
    )
