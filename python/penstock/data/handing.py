"""A plan handed over to the Rust side: everything as plain values."""

from typing import TYPE_CHECKING, Any

from penstock.data.legs import Phase, mixture_values
from penstock.data.stored import record_shards, shard_descriptions
from penstock.data.tables import table_source

if TYPE_CHECKING:
    from penstock.data.planning import Plan, Prepared
    from penstock.store import Store


def rust_plan(plan: "Plan") -> dict[str, Any]:
    """A plan as the Rust side takes it."""
    return {
        "sources": [_source(plan.registry.store, each) for each in plan.prepared],
        "mixture": mixture_values(plan.recipe),
        "lengths": plan.lengths,
        "skips": list(plan.skips.steps),
    }


def _source(store: "Store", each: "Prepared") -> dict[str, Any]:
    # Samples whose length a random map may change are read by whoever calls the map.
    unread = each.records or each.drawn_length is not None
    shards = record_shards(each.tokens) if unread else shard_descriptions(each.tokens)
    tables = [table_source(store, phase.whole.table) if phase.whole.table else None for phase in each.phases]
    part = {
        "digest": each.tokens.digest,
        "shards": shards,
        "mask": None if each.loss is None else shard_descriptions(each.loss),
        "rows": [],
        "tables": tables,
    }
    return {
        "parts": [part],
        "phases": [_phase(store, phase) for phase in each.phases],
        "item_bytes": each.dtype.itemsize,
        "pad": each.pad,
        "policy": each.packing.policy,
        "epochs": each.source.epochs,
    }


def _phase(store: "Store", phase: Phase) -> dict[str, Any]:
    rest = None if phase.rest is None else (phase.rest_key, table_source(store, phase.rest.table))
    return {"first": phase.first, "epoch": phase.epoch, "part": phase.part, "rest": rest}
