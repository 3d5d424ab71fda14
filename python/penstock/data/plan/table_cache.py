"""Plan tables: which samples share a block and how long they are, built once and kept as objects of the registry.

A table's record, ``plans/<key>.json``, is found by the key of everything that the table follows from, so that opening the same
recipe again, or another one that packs the same samples alike, builds nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock import _rust, events
from penstock._rust import digest
from penstock.data.plan.samples import Samples
from penstock.data.plan.token_layout import fixed_lengths, shard_descriptions, stored_dtype
from penstock.data.stages import Pack, Pad, Stage, Truncate
from penstock.errors import ObjectMissing, RecipeInvalid, SourceEmpty
from penstock.registry import Registry
from penstock.registry.scan.scan import object_name, put_object
from penstock.registry.scan.work_folder import work_folder
from penstock.store import Store
from penstock.store.hostcache import use_host_cache

if TYPE_CHECKING:
    from penstock._rust.plan import BrokenLegPlan, PackingPlan
    from penstock._rust.source import SourceValues

#: Part of the key of plan tables: raise it when the same lengths are planned differently.
PLANNER = 1


class PlanTable(msgspec.Struct, frozen=True):
    """A plan table in the registry."""

    #: Its digest; empty when every stored row is a row of a batch.
    table: str
    #: Packs (or rows) per epoch.
    packs: int


@dataclass(frozen=True, slots=True)
class Packing:
    """How the samples of a source become rows."""

    #: What the recipe calls the source.
    alias: str
    policy: str
    shuffle: str
    truncate: Truncate | None = None
    #: The token after every document.
    separator: int | None = None

    @classmethod
    def of(cls, alias: str, stages: Sequence[Stage], shuffle: str) -> "Packing":
        """As the stages of a source declare it."""
        shape = next((stage for stage in stages if isinstance(stage, Pack | Pad)), None)
        cut = next((stage for stage in stages if isinstance(stage, Truncate)), None)
        policy = "single" if isinstance(shape, Pad) else shape.policy if shape else "concat"
        separator = shape.separator if isinstance(shape, Pack) else None
        return cls(alias, policy, shuffle, cut, separator)

    def document(self) -> dict[str, Any]:
        """What tells it from others, whatever the source is called; what came later counts only where it is used."""
        document = asdict(replace(self, alias=""))
        return (
            document
            if self.separator is not None
            else {k: v for k, v in document.items() if k != "separator"}
        )

    def rust_separator(self) -> tuple[int, int] | None:
        """The token after every document, and how many stored tokens come before it at most."""
        if self.separator is None:
            return None
        cut = self.truncate
        return self.separator, cut.length if cut is not None and cut.keep == "start" else (1 << 32) - 1

    def to_rust(self, length: int, source: str) -> "PackingPlan":
        """The packing as Rust takes it; ``source`` is what decides which samples share a block."""
        return {"length": length, "policy": self.policy, "shuffle": self.shuffle, "source": source}


@dataclass(frozen=True, slots=True)
class BrokenLeg:
    """A leg whose epoch is broken off because the length of rows changes."""

    table: str
    #: What its orders derive from.
    key: str
    seed: int
    length: int
    epoch: int
    #: Rows that were delivered of the epoch.
    delivered: int


def whole_table(
    registry: Registry, samples: Samples, packing: Packing, length: int, *, source: str = ""
) -> PlanTable:
    """The table of all samples of a source; built once per version, filters, length, policy and shuffle.

    ``source`` decides which samples share a block: the version that holds the tokens, unless something else is given.
    """
    origin, cut = source or samples.tokens.digest, packing.truncate
    parts = (PLANNER, origin, sorted(samples.verdicts), length, packing.policy, packing.shuffle)
    later = (() if cut is None else (cut.document(),), () if packing.separator is None else ("separator",))
    key = digest(msgspec.json.encode((*parts, *later[0], *later[1])))

    def build(path: Path) -> int:
        lengths, starts = _truncated(_lengths(samples), cut)
        kept = None if samples.mask is None else samples.mask.astype(np.uint8)
        planned = lengths if kept is None else lengths[samples.mask]
        if not planned.any():
            raise SourceEmpty(source=packing.alias, rows=samples.tokens.rows)
        _check_fit(planned, packing, length)
        if packing.separator is not None:
            lengths = lengths + (lengths > 0).astype(np.uint32)
        return _rust.build_table(path, lengths, kept, starts, packing.to_rust(length, origin))

    return _built(registry.store, key, build, alias=packing.alias)


def rest_table(registry: Registry, broken: BrokenLeg, packing: Packing, length: int) -> tuple[PlanTable, str]:
    """The table of what a leg has not delivered of its epoch, packed to another length, and what its orders derive from."""
    parts = ("rest", PLANNER, broken.table, broken.key, broken.seed, broken.length, broken.epoch)
    key = digest(msgspec.json.encode((*parts, broken.delivered, length, packing.policy, packing.shuffle)))

    def build(path: Path) -> int:
        leg: BrokenLegPlan = {
            "table": table_source(registry.store, broken.table),
            "source": broken.key,
            "seed": broken.seed,
            "length": broken.length,
            "epoch": broken.epoch,
            "delivered": broken.delivered,
        }
        return _rust.build_rest(path, leg, packing.to_rust(length, key))

    return _built(registry.store, key, build, alias=packing.alias), key


def table_source(store: Store, table: str) -> "SourceValues":
    """A table as the Rust side opens it: a path, or an object that is read through the cache of the host."""
    path = store.local_path(object_name(table))
    if path is not None:
        return path
    client = getattr(store, "client", None)
    if client is not None:
        use_host_cache()
        return client, object_name(table), table
    data = store.get(object_name(table))
    return (
        f"{store.url}/{object_name(table)}",
        len(data),
        lambda offset, length: data[offset : offset + length],
    )


def _built(store: Store, key: str, build: Callable[[Path], int], *, alias: str) -> PlanTable:
    """The table of a key, built if there is none."""
    name = f"plans/{key.removeprefix('b3:')}.json"
    try:
        known = msgspec.json.decode(store.get(name), type=PlanTable)
        store.describe(object_name(known.table))
        return known
    except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
        pass
    with (
        events.span("data.table", source=alias),
        work_folder(store, "plan") as folder,
    ):
        path = folder / "table"
        packs = build(path)
        table = PlanTable(put_object(store, "objects", path), packs)
    store.put_if_absent(name, msgspec.json.encode(table))
    return table


def _lengths(samples: Samples) -> Any:
    if samples.lengths is not None:
        return samples.lengths()
    tokens = samples.tokens
    itemsize = stored_dtype(tokens).itemsize
    fixed = fixed_lengths(tokens, itemsize)
    if fixed is not None:
        return fixed
    return np.frombuffer(_rust.token_lengths(shard_descriptions(tokens), itemsize), dtype=np.uint32)


def _truncated(lengths: Any, cut: Truncate | None) -> tuple[Any, Any]:
    """Planned lengths, and the first planned token of each sample where that is not the first."""
    if cut is None:
        return lengths, None
    left = np.minimum(lengths, np.uint32(cut.length))
    return left, (lengths - left if cut.keep == "end" else None)


def _check_fit(lengths: Any, packing: Packing, length: int) -> None:
    """That samples fit into rows where each is to have one of its own, and that there is a row to crop."""
    tokens = int(lengths.sum(dtype=np.uint64))
    if packing.policy == "crop" and tokens < length:
        reason = f"{packing.alias} has {tokens:,} tokens, too few for a crop of {length:,}"
        raise RecipeInvalid(field="pack", reason=reason, hint="crop fewer tokens, or let concat pad the row")
    too_long = int((lengths > length).sum())
    if packing.policy == "single" and too_long:
        reason = (
            f"{too_long:,} of the {len(lengths):,} samples of {packing.alias} have more than {length} tokens, "
            f"the longest {int(lengths.max()):,}"
        )
        raise RecipeInvalid(field="pad", reason=reason, hint=f"put Truncate({length}) before Pad({length})")
