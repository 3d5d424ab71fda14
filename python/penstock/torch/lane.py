"""The lane of a process: ranks that differ only in tensor or pipeline parallelism train on the same rows.

A mesh names its dimensions; the data-parallel ones number the lanes. Everything else about a rank is nobody's business here.
"""

import os
from collections.abc import Sequence

from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from penstock.data import Lane
from penstock.errors import UsageError

#: What dimensions of a mesh are called along which rows are spread.
DATA_DIMS = ("dp", "dp_replicate", "dp_shard", "fsdp", "hsdp", "data", "replicate", "shard")


def current_lane() -> Lane:
    """One lane per rank of the default process group; the only lane when there is no group."""
    if not distributed.is_available():
        return Lane()
    if distributed.is_initialized():
        return Lane(distributed.get_rank(), of=distributed.get_world_size())
    if distributed.is_torchelastic_launched() and os.environ.get("WORLD_SIZE") != "1":
        # Every rank would silently get all rows.
        raise UsageError(
            "torchrun started this process, but there is no process group to take the lane from",
            hint="call torch.distributed.init_process_group() before, or give lane=penstock.Lane(k, of=n)",
        )
    return Lane()


def lane_of(mesh: DeviceMesh, dim: str | Sequence[str] = "dp") -> Lane:
    """The lane of this rank in a mesh, by its place along ``dim``.

    Several dimensions, such as ``("dp_replicate", "dp_shard")``, number the lanes together, the first one slowest.
    """
    names = (dim,) if isinstance(dim, str) else tuple(dim)
    known = mesh.mesh_dim_names or ()
    if not names or not set(names) <= set(known):
        raise UsageError(
            f"the mesh has no dimension {', '.join(sorted({*names} - {*known})) or 'that was named'}",
            hint=f"its dimensions are {', '.join(known) or 'without names: give mesh_dim_names'}",
        )
    place = mesh.get_coordinate()
    if place is None:
        raise UsageError(
            "this rank is not part of the mesh", hint="only ranks of the mesh open a loader on it"
        )
    number, of = 0, 1
    for name in names:
        at = known.index(name)
        number = number * mesh.size(at) + place[at]
        of *= mesh.size(at)
    return Lane(number, of=of)


def lane_of_model(model: nn.Module) -> Lane:
    """The lane of this rank, from the mesh of the model's parameters if its dimensions are named, else one per rank."""
    meshes = {p.device_mesh for p in model.parameters() if isinstance(p, DTensor)}
    for mesh in sorted(meshes, key=lambda candidate: -candidate.ndim):
        names = mesh.mesh_dim_names or ()
        spread = tuple(name for name in names if name in DATA_DIMS)
        if len(names) > len(spread) and not spread and mesh.size() == distributed.get_world_size():
            raise UsageError(
                f"the mesh has the dimensions {', '.join(names)}, none of which is known to spread rows",
                hint="say which: penstock.torch.state(…, lane=penstock.torch.lane_of(mesh, 'name'))",
            )
        if spread:
            return lane_of(mesh, spread)
    return current_lane()
