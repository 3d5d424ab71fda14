"""A batch that Python finished, as bytes for another process, and back.

What Rust planned of it travels in Rust's own layout, the values as columns beside it. The receiver knows the plan, so names of
versions and the way back to the bytes need not travel.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import _rust
from penstock.data.feed.batch import Batch, Origin
from penstock.data.feed.columns_wire import pack, unpack
from penstock.data.feed.undecodable import Fault
from penstock.data.maps.tokens import Left, MappedBatch
from penstock.data.records.record_batch import RecordBatch
from penstock.errors import BatchDamaged

if TYPE_CHECKING:
    from penstock.data.plan.plan import Plan

#: Columns that are no fields of the batch; a field's name has this before it, so that none can be taken for one.
_FIELD = "."


def ship(batch: Batch) -> bytes:
    """A batch of records or of mapped tokens as bytes; ``NotPackable`` when a value of it cannot travel."""
    facts: dict[str, Any] = {"digest": batch.digest, "size_bytes": batch.size_bytes}
    columns: dict[str, Any] = {"made": np.frombuffer(batch.made.to_bytes(), dtype=np.uint8)}
    if isinstance(batch, RecordBatch):
        facts |= {"kind": "records", "faults": [_fault(fault) for fault in batch.faults]}
        columns |= {f"{_FIELD}{name}": values for name, values in batch.items()}
    elif isinstance(batch, MappedBatch):
        facts |= {"kind": "mapped", "faults": [_fault(fault) for fault in batch.faults]}
        columns |= {"tokens": batch["tokens"], "real": batch.left.real, "heard": batch.left.heard}
    else:
        raise BatchDamaged(reason=f"{batch!r} was not finished by Python")
    return pack(columns, facts)


def receive(packed: Any, plan: "Plan") -> Batch:
    """The batch that was shipped; its arrays stay where they are."""
    columns, facts = unpack(packed)
    try:
        rust_batch = _rust.FeedBatch.from_bytes(columns.pop("made").tobytes())
        digest = int(facts["digest"], 16)
        faults = [_refault(fault) for fault in facts["faults"]]
        if facts["kind"] == "records":
            fields = {name.removeprefix(_FIELD): values for name, values in columns.items()}
            size = int(facts["size_bytes"])
            return RecordBatch(rust_batch, plan, fields, digest=digest, size_bytes=size, faults=faults)
        left = Left((rust_batch.rows, rust_batch.length))
        left.real, left.heard, left.faults = columns["real"], columns["heard"], faults
        return MappedBatch(rust_batch, plan, columns["tokens"], left, digest=digest)
    except (KeyError, TypeError, ValueError) as problem:
        raise BatchDamaged(reason=f"something of the batch is missing: {problem!r}") from problem


def _fault(fault: Fault) -> dict[str, Any]:
    return {"row": fault.row, "origin": fault.origin.to_json(), "reason": fault.reason}


def _refault(document: dict[str, Any]) -> Fault:
    origin = dict(document["origin"])
    for name in ("byte_range", "token_span", "row_span"):
        origin[name] = None if origin[name] is None else tuple(origin[name])
    return Fault(document["row"], Origin(**origin), document["reason"])
