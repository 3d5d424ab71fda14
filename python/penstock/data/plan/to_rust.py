"""A plan handed over to the Rust side: everything as plain values.

The structures are declared in ``_rust/plan.pyi`` and read by ``crates/penstock-python/src/plan.rs``; ``tests/data/test_to_rust.py``
holds the two together.
"""

from typing import TYPE_CHECKING

from penstock.data.plan.phases import Phase, turn_plan
from penstock.data.plan.table_cache import table_source
from penstock.data.plan.token_layout import record_shards, shard_descriptions
from penstock.registry import Version

if TYPE_CHECKING:
    from penstock._rust.plan import FeedPlan, PartPlan, PhasePlan, SourcePlan
    from penstock.data.plan.plan import Plan, Prepared
    from penstock.store import Store


def rust_plan(plan: "Plan") -> "FeedPlan":
    """A plan as the Rust side takes it."""
    return {
        "sources": [_source(plan.registry.store, prepared) for prepared in plan.prepared],
        "mixture": turn_plan(plan.recipe),
        "lengths": plan.lengths,
        "skips": list(plan.skips.steps),
    }


def _source(store: "Store", prepared: "Prepared") -> "SourcePlan":
    return {
        "parts": [] if prepared.growing else [_whole(store, prepared)],
        "expected": len(prepared.growing.eras) if prepared.growing else 1,
        "phases": [_phase(store, phase) for phase in prepared.phases],
        "item_bytes": prepared.dtype.itemsize,
        "pad": prepared.pad,
        "masked": prepared.growing.masked if prepared.growing else prepared.loss is not None,
        "policy": prepared.packing.policy,
        "epochs": prepared.source.epochs,
    }


def _whole(store: "Store", prepared: "Prepared") -> "PartPlan":
    """All of a source as one part."""
    part = part_values(
        store,
        digest=prepared.tokens.digest,
        tokens=prepared.tokens,
        loss=prepared.loss,
        tables=[phase.whole.table for phase in prepared.phases],
        rows=[],
        separator=prepared.packing.rust_separator(),
    )
    # Samples whose length a random map may change are read by whoever calls the map.
    unread = prepared.records or prepared.drawn_length is not None
    if unread:
        part["shards"] = record_shards(prepared.tokens)
    return part


def part_values(
    store: "Store",
    *,
    digest: str,
    tokens: Version | None,
    loss: Version | None,
    tables: list[str],
    rows: list[tuple[int, int]],
    separator: tuple[int, int] | None = None,
) -> "PartPlan":
    """A part of a source as the Rust side takes it; one without tokens has no rows.

    ``digest`` is what its orders derive from; ``rows`` are runs of rows: (row of the part, row of the version).
    """
    return {
        "digest": digest,
        "shards": [] if tokens is None else shard_descriptions(tokens),
        "mask": None if loss is None else shard_descriptions(loss),
        "rows": [] if tokens is None else rows,
        "separator": separator,
        "tables": [table_source(store, table) if table else None for table in tables],
    }


def _phase(store: "Store", phase: Phase) -> "PhasePlan":
    rest = None if phase.rest is None else (phase.rest_key, table_source(store, phase.rest.table))
    return {"first": phase.first, "epoch": phase.epoch, "part": phase.part, "rest": rest}
