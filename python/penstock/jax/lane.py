"""The lane of a process: which rows its devices hold when a batch is spread over some axes of a mesh.

Processes whose devices differ only along other axes (tensor parallelism) hold the same rows, so they share a lane.
"""

from collections.abc import Sequence

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from penstock.data import Lane
from penstock.errors import UsageError


def lane_of(mesh: Mesh, axis: str | Sequence[str] = "data") -> Lane:
    """The lane of this process when rows are spread along ``axis`` (the first of several varies slowest)."""
    held: dict[int, set[int]] = {}
    for device, rows in _rows_by_device(mesh, axis).items():
        held.setdefault(device.process_index, set()).update(rows)
    if jax.process_index() not in held:
        raise UsageError("no device of this process is part of the mesh")
    return lane_among(held, jax.process_index())


def lane_among(held: dict[int, set[int]], process: int) -> Lane:
    """The lane of a process, from the shares of rows that every process holds.

    A lane is one contiguous n-th of a step, so every process must hold a stretch of the same length, aligned to it.
    """
    share = len(held[process])
    total = len(set().union(*held.values()))
    for number, rows in sorted(held.items()):
        if len(rows) != share or max(rows) - min(rows) + 1 != share or min(rows) % share:
            raise UsageError(
                f"process {number} holds parts {', '.join(map(str, sorted(rows)))} of {total}, which are not next to each other",
                hint="order the devices of the mesh so that those of a process are next to each other",
            )
    return Lane(min(held[process]) // share, of=total // share)


def sharding_of(mesh: Mesh, axis: str | Sequence[str]) -> NamedSharding:
    """Rows spread along ``axis``, everything else whole on every device."""
    names = (axis,) if isinstance(axis, str) else tuple(axis)
    if not names or not set(names) <= set(mesh.axis_names):
        raise UsageError(
            f"the mesh has no axis {', '.join(sorted({*names} - {*mesh.axis_names})) or 'that was named'}",
            hint=f"its axes are {', '.join(map(str, mesh.axis_names))}",
        )
    return NamedSharding(mesh, PartitionSpec(names))


def parts_of(mesh: Mesh, axis: str | Sequence[str]) -> int:
    """Into how many parts the rows of a step are spread."""
    names = (axis,) if isinstance(axis, str) else tuple(axis)
    parts = 1
    for name in names:
        parts *= mesh.shape[name]
    return parts


def _rows_by_device(mesh: Mesh, axis: str | Sequence[str]) -> dict[jax.Device, range]:
    sharding = sharding_of(mesh, axis)
    parts = parts_of(mesh, axis)
    places = sharding.devices_indices_map((parts,))
    return {device: range(*rows.indices(parts)) for device, (rows,) in places.items()}
