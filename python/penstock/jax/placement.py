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
from penstock.data.batch import FIELDS
from penstock.errors import RecipeInvalid, UsageError
from penstock.jax.batch import Batch
from penstock.jax.lane import lane_of, parts_of, sharding_of

#: Those that have one value per token; boundaries change their number with every step, and every new shape compiles anew.
ROW_FIELDS = tuple(field for field in FIELDS if field != "cu_seqlens")
#: Names of fields, or names with the types they are wanted in (None: as stored).
Fields = Sequence[str] | Mapping[str, Any]


def types_of(fields: Fields) -> dict[str, Any]:
    """The wanted fields with their types: tokens as ``int32`` unless said otherwise, the rest as stored."""
    if isinstance(fields, str):
        raise UsageError(f"fields is the text {fields!r}", hint=f"give a tuple: ({fields!r},)")
    given = dict(fields) if isinstance(fields, Mapping) else {name: _default(name) for name in fields}
    for name in given:
        if name not in ROW_FIELDS:
            hint = f"its fields are {', '.join(ROW_FIELDS)}; segments say what cu_seqlens would"
            raise UsageError(f"a batch of global arrays has no field {name!r}", hint=hint)
    return given


class Placement:
    """Turns batches of a feed into batches of global arrays."""

    def __init__(self, mesh: Mesh, axis: str | Sequence[str], fields: Fields) -> None:
        self.sharding = sharding_of(mesh, axis)
        self.lane: Lane = lane_of(mesh, axis)
        self._parts = parts_of(mesh, axis)
        self._types = types_of(fields)

    def check(self, rows: int) -> None:
        """The devices along the axis divide the rows of a step."""
        if rows % self._parts:
            hint = f"choose a batch that {self._parts} divides, or a mesh with fewer devices along the axis"
            raise RecipeInvalid(
                field="batch", reason=f"{rows} rows cannot be spread over {self._parts} devices", hint=hint
            )

    def __call__(self, batch: HostBatch) -> Batch:
        """Start placing a batch."""
        return Batch({name: self._placed(name, batch[name]) for name in self._types}, of=batch)

    def _placed(self, name: str, rows: "np.ndarray[Any, Any]") -> jax.Array:
        wanted = self._types[name]
        local = rows if wanted is None else rows.astype(wanted)
        shape = (rows.shape[0] * self.lane.of, *rows.shape[1:])
        placed: jax.Array = jax.make_array_from_process_local_data(self.sharding, local, shape)
        return placed


def _default(name: str) -> Any:
    return jnp.int32 if name == "tokens" else None
