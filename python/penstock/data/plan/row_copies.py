"""Whether a feed of records reads its sources through row copies: where random rows would each cost a large unit.

Rows of parquet and Arrow are decoded in units (row groups, record batches). As long as all of them fit into the cache of
decoded units, that is as good as anything. Where they do not, and rows are shuffled, nearly every row decodes a unit of its
own; then the shards are copied once into small batches (see ``registry/copies/row_copies.py``). Batches are the same either way.
"""

import dataclasses
import logging
import shutil
from typing import TYPE_CHECKING

from penstock.data.feed.options import Copies
from penstock.data.plan.samples import PlanWatch
from penstock.errors import DerivedTooLarge, StoreError
from penstock.registry.copies.row_copies import can_be_copied, estimate_units, find_copies, make_copies
from penstock.registry.version import Access

if TYPE_CHECKING:
    from penstock.data.plan.plan import Plan, Prepared

_log = logging.getLogger("penstock.data")
#: Sources that hold no more than this when decoded stay in the cache of units.
CACHED_BYTES = 128 << 20
#: So many times their bytes is the most that files are thought to hold, before anybody looks into them.
_UNPACKED_MAX = 32
#: A unit that is smaller costs little more than a row.
UNIT_BYTES_SMALL = 1 << 20
#: How much is copied without being asked: at most so many bytes, and at most this share of what is free.
COPIED_BYTES_MAX = 256 << 30
_FREE_SHARE = 0.5


def with_row_copies(plan: "Plan", copies: Copies, watch: PlanWatch | None = None) -> "Plan":
    """The plan, with sources that are read through copies where that is worth it."""
    if copies == "never" or not plan.records or plan.recipe.shuffle == "none":
        return plan
    candidates = [entry for entry in plan.prepared if can_be_copied(entry.version)]
    if copies == "auto" and sum(entry.version.bytes for entry in candidates) * _UNPACKED_MAX < CACHED_BYTES:
        return plan
    units = {entry.source.alias: estimate_units(entry.version) for entry in candidates}
    crowded = sum(estimate.bytes for estimate in units.values()) > CACHED_BYTES
    chosen = {
        alias
        for alias, estimate in units.items()
        if copies == "always" or (crowded and estimate.unit_bytes > UNIT_BYTES_SMALL)
    }
    prepared = tuple(
        _copied(entry, plan, copies, watch) if entry.source.alias in chosen else entry
        for entry in plan.prepared
    )
    return dataclasses.replace(plan, prepared=prepared)


def _copied(prepared: "Prepared", plan: "Plan", copies: Copies, watch: PlanWatch | None) -> "Prepared":
    version, store = prepared.version, plan.registry.store
    message = f"copying {version.address} so that single rows can be read (shards)"
    tell = None if watch is None else lambda done, total: watch(message, done, total)
    try:
        row_copies = make_copies(version, store, bytes_max=_bytes_max(plan, copies), watch=tell)
    # No room, no right to write, a store that fails: slow batches are better than none. Damage is not among them.
    except (DerivedTooLarge, StoreError, OSError) as reason:
        if copies == "always":
            raise
        _log.warning(
            "shuffled rows of %s are read without a copy, which is slow: %s", version.address, reason
        )
        row_copies = find_copies(version, store)
    copied = version.accessed(Access(fields=version.access.fields, copies=row_copies))
    return dataclasses.replace(prepared, version=copied, tokens=copied)


def _bytes_max(plan: "Plan", copies: Copies) -> int:
    if copies == "always":
        return 1 << 62
    folder = plan.registry.store.local_path("")
    free = COPIED_BYTES_MAX if folder is None else int(shutil.disk_usage(folder).free * _FREE_SHARE)
    return min(COPIED_BYTES_MAX, free)
