"""From the rows of one process to global arrays over a mesh.

Each process reads its lane alone; together the lanes are the batch, and no row crosses the network. Copies to devices are
started by JAX and not waited for, so placing batch k+1 runs beside training on batch k.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from penstock.data import Batch as HostBatch
from penstock.data import Lane
from penstock.data.feed.token_batch import FIELDS
from penstock.errors import RecipeInvalid, UsageError
from penstock.jax.batch import Batch
from penstock.jax.lane import lane_of, parts_of, sharding_of

#: Those that have one value per token; boundaries change their number with every step, and every new shape compiles anew.
ROW_FIELDS = tuple(field for field in FIELDS if field != "cu_seqlens")
#: Names of fields, or names with the types they are wanted in (None: as stored).
Fields = Sequence[str] | Mapping[str, Any]
#: What a batch of tokens has unless something else is asked for.
TOKEN_FIELDS = ("tokens", "segments")


def types_of(fields: Fields | None, *, records: bool = False) -> dict[str, Any] | None:
    """The wanted fields with their types: tokens as ``int32`` unless said otherwise, the rest as stored.

    None for all fields, which is what records have unless some are chosen; which they are is known when a batch is there.
    """
    if isinstance(fields, str):
        raise UsageError(
            f"fields must be a tuple of names, got the text {fields!r}", hint=f"give a tuple: ({fields!r},)"
        )
    if fields is None:
        return None if records else {name: _default(name) for name in TOKEN_FIELDS}
    if records:
        return dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields)
    types = dict(fields) if isinstance(fields, Mapping) else {name: _default(name) for name in fields}
    for name in types:
        if name not in ROW_FIELDS:
            hint = f"its fields are {', '.join(ROW_FIELDS)}; segments say what cu_seqlens would"
            raise UsageError(f"a batch of global arrays has no field {name!r}", hint=hint)
    return types


class Placement:
    """Turns batches of a feed into batches of global arrays."""

    def __init__(self, mesh: Mesh, axis: str | Sequence[str]) -> None:
        self.sharding = sharding_of(mesh, axis)
        self.lane: Lane = lane_of(mesh, axis)
        self._parts = parts_of(mesh, axis)
        self._types: dict[str, Any] | None = None

    def choose(self, fields: Fields | None, *, records: bool) -> None:
        """Which fields are placed; what there is to choose from is known once a feed is open."""
        self._types = types_of(fields, records=records)

    def check(self, rows: int) -> None:
        """The devices along the axis divide the rows of a step."""
        if rows % self._parts:
            hint = f"choose a batch that {self._parts} divides, or a mesh with fewer devices along the axis"
            raise RecipeInvalid(
                field="batch", reason=f"{rows} rows cannot be spread over {self._parts} devices", hint=hint
            )

    def __call__(self, batch: HostBatch) -> Batch:
        """Start placing a batch."""
        types = dict.fromkeys(batch) if self._types is None else self._types
        return Batch({name: self._placed(batch, name, wanted) for name, wanted in types.items()}, of=batch)

    def _placed(self, batch: HostBatch, name: str, wanted: Any) -> jax.Array:
        rows = _numbers(batch, name)
        local = rows.astype(
            jax.dtypes.canonicalize_dtype(rows.dtype) if wanted is None else wanted, copy=False
        )
        if wanted is None and rows.dtype.kind in "iu" and not np.array_equal(local, rows):
            hint = "choose a type for it, or let JAX have 64 bits: jax.config.update('jax_enable_x64', True)"
            raise UsageError(f"numbers of the field {name!r} do not fit into {local.dtype}", hint=hint)
        shape = (rows.shape[0] * self.lane.of, *rows.shape[1:])
        placed: jax.Array = jax.make_array_from_process_local_data(self.sharding, local, shape)
        return placed


def _numbers(batch: HostBatch, name: str) -> "np.ndarray[Any, Any]":
    """The values of a field, which have to be one array of numbers."""
    if name not in batch:
        hint = f"its fields are {', '.join(batch)}"
        raise UsageError(f"the batch of step {batch.step} has no field {name!r}", hint=hint)
    values: Any = batch[name]
    if isinstance(values, np.ndarray) and (values.dtype.kind in "biufc" or values.dtype.name == "bfloat16"):
        return values
    usable = [field for field in batch if isinstance(batch[field], np.ndarray)]
    kind = values.dtype if isinstance(values, np.ndarray) else "values that fit into no array"
    raise UsageError(
        f"the field {name!r} holds {kind}, but JAX has arrays of numbers alone",
        hint=f"choose fields={tuple(usable)!r}, or make numbers of it with a Map",
    )


def _default(name: str) -> Any:
    return jnp.int32 if name == "tokens" else None
