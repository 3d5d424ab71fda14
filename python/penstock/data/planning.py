"""From a recipe to what a feed reads: versions pinned, columns measured, plan tables built, each once.

Everything that decides order is a measured column of a version. What is missing is measured now, in parallel and
resumable; what was measured before is found by its key. The result is pure data: a feed made from it does no further
deciding.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock import _rust, events
from penstock._rust import digest
from penstock.data.measured import PlanWatch, Samples, measure_samples
from penstock.data.recipe import Recipe, Source
from penstock.data.records.choosing import reads_records
from penstock.data.skips import Skips
from penstock.data.stages import Pack
from penstock.errors import ObjectMissing, RecipeInvalid, SourceEmpty
from penstock.formats.arrays import to_dtype
from penstock.formats.reading import details_of, open_file, source_of
from penstock.registry import Registry, Shard, Version
from penstock.registry.scanning import object_name, put_object

#: Part of the key of plan tables: raise it when the same lengths are planned differently.
PLANNER = 1


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
    #: Tokens per row of a batch.
    length: int
    #: Digest of the plan table; empty when every stored row is a row of a batch.
    table: str
    #: Packs (or rows) per epoch.
    packs: int
    #: Whether its samples are no tokens; then each is a row, and somebody else than the plan reads it.
    records: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe with everything measured."""

    recipe: Recipe
    registry: Registry
    prepared: tuple[Prepared, ...]
    skips: Skips

    @property
    def versions(self) -> dict[str, str]:
        """Alias to version digest."""
        return {each.source.alias: each.version.digest for each in self.prepared}

    @property
    def dtype(self) -> np.dtype[Any]:
        """Numpy type of a batch's tokens: the widest of the sources'."""
        return max((each.dtype for each in self.prepared), key=lambda dtype: dtype.itemsize)

    @property
    def records(self) -> bool:
        """Whether samples are no tokens."""
        return self.prepared[0].records

    def prefix(self, step: int) -> str:
        """The digest of everything that the steps before ``step`` depend on, as the recipe says it."""
        document = self.recipe.document(self.versions, until_step=step)
        return digest(msgspec.json.encode(document, order="deterministic"))

    def digest(self, step: int) -> str:
        """The digest of the tables and token versions behind the steps before ``step``."""
        used = {each["alias"] for each in self.recipe.document(self.versions, until_step=step)["sources"]}
        parts = [
            (p.source.alias, p.tokens.digest, p.table, p.packs)
            for p in self.prepared
            if p.source.alias in used
        ]
        return digest(msgspec.json.encode((PLANNER, parts), order="deterministic"))


def prepare(
    recipe: Recipe, registry: Registry, watch: PlanWatch | None = None, *, skips: Skips | None = None
) -> Plan:
    """Pin, measure and plan every source of a recipe."""
    with events.span("data.prepare", sources=len(recipe.sources)):
        prepared = tuple(_prepare_source(recipe, source, registry, watch) for source in recipe.sources)
    _check_kinds(prepared)
    lengths = {each.length for each in prepared}
    if len(lengths) > 1:
        shown = ", ".join(f"{each.source.alias} {each.length}" for each in prepared)
        raise RecipeInvalid(
            field="sources", reason=f"rows of one batch have one length, but there are {shown}"
        )
    _check_dtypes(prepared)
    return Plan(recipe, registry, prepared, skips or Skips())


def _check_kinds(prepared: tuple[Prepared, ...]) -> None:
    tokens = [each.source.alias for each in prepared if not each.records]
    records = [each.source.alias for each in prepared if each.records]
    if tokens and records:
        reason = f"{', '.join(tokens)} give tokens, but {', '.join(records)} are read as records"
        raise RecipeInvalid(
            field="sources", reason=reason, hint="tokenise and pack all sources, or none of them"
        )


def _check_dtypes(prepared: tuple[Prepared, ...]) -> None:
    """Narrow tokens are widened with zeros, which would make other numbers of those with a sign."""
    widest = max((each.dtype for each in prepared), key=lambda dtype: dtype.itemsize)
    for each in prepared:
        if each.dtype != widest and (each.dtype.kind == "i" or each.dtype.itemsize == widest.itemsize):
            reason = f"{each.source.alias} holds {each.dtype}, which cannot be joined with {widest}"
            raise RecipeInvalid(
                field="sources", reason=reason, hint="store the tokens of all sources in one type"
            )


def _prepare_source(recipe: Recipe, source: Source, registry: Registry, watch: PlanWatch | None) -> Prepared:
    stages = recipe.stages_of(source)
    version = registry.resolve(source.name)
    samples = measure_samples(recipe, source, version, registry, watch)
    if reads_records(stages, version):
        return _prepare_records(recipe, source, registry, samples)
    tokens = samples.tokens
    pack = next((stage for stage in stages if isinstance(stage, Pack)), None)
    dtype = _dtype(tokens)
    if pack is None:
        if samples.mask is not None:
            raise RecipeInvalid(
                field="stages",
                reason=f"{source.alias} is filtered or split but not packed",
                hint="add a Pack stage",
            )
        length = _row_length(source, tokens, dtype)
        return Prepared(source, version, tokens, dtype, length, "", tokens.rows)
    table, packs = _table(registry, recipe, source, pack, samples)
    return Prepared(source, version, tokens, dtype, pack.length, table, packs)


def _prepare_records(recipe: Recipe, source: Source, registry: Registry, samples: Samples) -> Prepared:
    """A record is a pack of one sample; where all samples are read, no table is needed to find it."""
    version = samples.tokens
    table, packs = "", version.rows
    if samples.mask is not None:
        single = replace(samples, lengths=np.ones(version.rows, dtype=np.uint32))
        table, packs = _table(registry, recipe, source, Pack(1), single)
    return Prepared(source, version, version, np.dtype(np.uint8), 1, table, packs, records=True)


def _dtype(tokens: Version) -> np.dtype[Any]:
    shards = tokens.manifest.shards
    # Token versions are ours and have one type; files of others are looked at one by one.
    looked_at = shards[:1] if tokens.manifest.format == "tokens" else shards
    dtypes = {_shard_dtype(tokens, shard) for shard in looked_at}
    if len(dtypes) > 1:
        shown = " and ".join(sorted(str(dtype) for dtype in dtypes))
        raise RecipeInvalid(
            field="sources", reason=f"{tokens.address} holds {shown}", hint="store all its arrays in one type"
        )
    (dtype,) = dtypes
    if dtype.kind not in "iu" or dtype.byteorder == ">":
        raise RecipeInvalid(
            field="sources", reason=f"{tokens.address} holds {dtype}, but tokens are whole numbers"
        )
    return dtype


def _shard_dtype(tokens: Version, shard: Shard) -> np.dtype[Any]:
    details = details_of(open_file(tokens.open_shard(shard)))
    return np.dtype(details["dtype"]) if "dtype" in details else to_dtype(_column(details)[1])


def _column(details: dict[str, Any]) -> list[Any]:
    """The one array of an array file: name, type, shape, first byte, meaning."""
    (column,) = details["columns"]
    return list(column)


def fixed_layout(tokens: Version, shard: Shard) -> tuple[int, int]:
    """First byte and bytes of each row of an array file, whose rows follow each other without gaps."""
    details = details_of(open_file(tokens.open_shard(shard)))
    _, dtype, shape, offset, _ = _column(details)
    return int(offset), int(np.prod(shape[1:], dtype=np.int64)) * to_dtype(dtype).itemsize


def _row_length(source: Source, tokens: Version, dtype: np.dtype[Any]) -> int:
    if tokens.manifest.format != "npy":
        hint = "add a Pack stage: these rows have lengths of their own"
        raise RecipeInvalid(field="stages", reason=f"{source.alias} is not packed", hint=hint)
    sizes = {fixed_layout(tokens, shard)[1] for shard in tokens.manifest.shards}
    if len(sizes) != 1:
        raise RecipeInvalid(
            field="sources", reason=f"the arrays of {source.alias} have rows of different lengths"
        )
    return sizes.pop() // dtype.itemsize


def _table(
    registry: Registry, recipe: Recipe, source: Source, pack: Pack, samples: Samples
) -> tuple[str, int]:
    """The plan table's digest and its packs per epoch; built once per version, filters, length, policy and shuffle."""
    tokens = samples.tokens
    parts = (PLANNER, tokens.digest, sorted(samples.verdicts), pack.length, pack.policy, recipe.shuffle)
    name = f"plans/{digest(msgspec.json.encode(parts)).removeprefix('b3:')}.json"
    try:
        known = msgspec.json.decode(registry.store.get(name), type=_TableRecord)
        registry.store.describe(object_name(known.table))
        return known.table, known.packs
    except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
        pass
    lengths = samples.lengths
    if lengths is None:
        lengths = np.frombuffer(
            _rust.token_lengths(shard_descriptions(tokens), _dtype(tokens).itemsize), dtype=np.uint32
        )
    if not (lengths if samples.mask is None else lengths[samples.mask]).any():
        raise SourceEmpty(source=source.alias, rows=tokens.rows)
    with (
        events.span("data.table", source=source.alias),
        tempfile.TemporaryDirectory(prefix="penstock-plan-") as folder,
    ):
        path = Path(folder) / "table"
        kept = None if samples.mask is None else samples.mask.astype(np.uint8).data
        packs = _rust.build_table(
            path,
            lengths.data,
            kept,
            length=pack.length,
            policy=pack.policy,
            shuffle=recipe.shuffle,
            source=tokens.digest,
        )
        table = put_object(registry.store, "objects", path)
    registry.store.put_if_absent(name, msgspec.json.encode(_TableRecord(table, packs)))
    return table, packs


class _TableRecord(msgspec.Struct, frozen=True):
    table: str
    packs: int


def record_shards(version: Version) -> list[tuple[Any, Any, str, int, tuple[int, int] | None]]:
    """Samples as the Rust side plans them without reading any: rows of no bytes, in a shard that is never opened."""
    return [(Path(version.address), b"", version.digest, version.rows, (0, 0))]


def shard_descriptions(tokens: Version) -> list[tuple[Any, Any, str, int, tuple[int, int] | None]]:
    """The shards of a version as the Rust side opens them: source, index, its digest, rows, layout of fixed rows."""
    found = []
    for shard in tokens.manifest.shards:
        opened = tokens.open_shard(shard)
        layout = fixed_layout(tokens, shard) if tokens.manifest.format == "npy" else None
        found.append((source_of(opened.raw), opened.index, opened.index_digest, shard.rows, layout))
    return found
