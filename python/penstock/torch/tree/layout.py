"""Which boxes of a tensor a rank holds, and which other ranks hold the same.

A DTensor is cut along some dimensions of a mesh and repeated along others. What is left of a dimension after all cuts is
found by cutting its *indices* the way the placements cut a tensor: that stays right for uneven and empty shards, and for
strided ones (FSDP over tensor parallelism), which may consist of several boxes. A plain tensor is one box that every rank has.
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from penstock.errors import TreeInvalid
from penstock.state.contract import Box

_NEITHER = "a placement that is neither a shard nor a replica"


@dataclass(frozen=True, slots=True)
class Part:
    """A box of the whole tensor, and where it lies in the local one."""

    box: Box
    #: First element of the box in the local tensor, by dimension.
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a rank holds a tensor."""

    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    replica: int
    replicas: int


def is_dtensor(tensor: torch.Tensor) -> bool:
    """Whether it is a tensor over a mesh. As long as nobody imported their class, there are none."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return False
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and isinstance(tensor, kind)


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of this rank, without its history."""
    local: torch.Tensor = tensor._local_tensor if is_dtensor(tensor) else tensor  # type: ignore[attr-defined]
    return local.detach()


def plain_layout(shape: tuple[int, ...], rank: int, ranks: int) -> Layout:
    """Every rank holds all of it."""
    part = Part(Box((0,) * len(shape), shape), (0,) * len(shape))
    return Layout(shape, (part,), rank, ranks)


class Layouts:
    """Layouts of tensors, each worked out once: a model has many tensors and few layouts."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks
        self._known: dict[Any, Layout] = {}
        self._outer: dict[Any, tuple[int, int]] = {}

    def of(self, name: str, tensor: torch.Tensor) -> Layout:
        """How this rank holds a tensor."""
        shape = tuple(tensor.shape)
        if not is_dtensor(tensor):
            if (known := self._known.get(shape)) is None:
                known = self._known[shape] = plain_layout(shape, self.rank, self.ranks)
            return known
        mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
        key = (mesh, placements, shape)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._spread(name, shape, mesh, placements)
        local = tuple(local_of(tensor).shape)
        held = sum(part.box.elements for part in known.parts)
        if held != prod(local):
            reason = f"placements {placements} give this rank {held} elements, but it has {local}"
            raise TreeInvalid(name=name, reason=reason)
        return known

    def _spread(self, name: str, shape: tuple[int, ...], mesh: Any, placements: Any) -> Layout:
        place = mesh.get_coordinate()
        if place is None:
            hint = "every rank must hold a part of every tensor, or a replica"
            raise TreeInvalid(name=name, reason="this rank is not part of its mesh", hint=hint)
        indices = [torch.arange(length) for length in shape]
        replica, replicas = 0, 1
        for along, placement in enumerate(placements):
            if placement.is_replicate():
                replica = replica * mesh.size(along) + place[along]
                replicas *= mesh.size(along)
            elif (dim := getattr(placement, "dim", None)) is not None:
                indices[dim] = _cut(placement, indices[dim], mesh.size(along), place[along])
            else:
                hint = "reduce it first: tensor.redistribute(placements=…)"
                raise TreeInvalid(name=name, reason=f"{_NEITHER}: {placement}", hint=hint)
        outer, outers = self._outside(name, mesh)
        return Layout(shape, tuple(_parts(indices)), replica * outers + outer, replicas * outers)

    def _outside(self, name: str, mesh: Any) -> tuple[int, int]:
        """Which of the meshes like this one it is: tensors of a part of a larger mesh are repeated along the rest."""
        if mesh.size() == self.ranks:
            return 0, 1
        if mesh not in self._outer:
            self._outer[mesh] = _place_outside(name, mesh.mesh, _root_of(mesh).mesh, self.rank, self.ranks)
        return self._outer[mesh]


def _cut(placement: Any, indices: torch.Tensor, count: int, number: int) -> torch.Tensor:
    """What a shard leaves of the indices of its dimension."""
    factor = getattr(placement, "split_factor", None)
    flat = type(placement)(0) if factor is None else type(placement)(0, split_factor=factor)
    shards, _ = flat._split_tensor(indices, count, with_padding=False, contiguous=False)
    cut: torch.Tensor = shards[number] if number < len(shards) else indices[:0]
    return cut


def _parts(indices: list[torch.Tensor]) -> Iterator[Part]:
    """The boxes that indices by dimension make: one, unless some dimension has gaps."""
    for runs in itertools.product(*(list(_runs(index.tolist())) for index in indices)):
        box = Box(tuple(first for first, _, _ in runs), tuple(length for _, _, length in runs))
        yield Part(box, tuple(at for _, at, _ in runs))


def _runs(indices: list[int]) -> Iterator[tuple[int, int, int]]:
    """Stretches without gaps, as first index, place in the list, length; an empty one if there is nothing."""
    if not indices:
        yield 0, 0, 0
        return
    starts = [0, *(at for at in range(1, len(indices)) if indices[at] != indices[at - 1] + 1)]
    for at, end in itertools.pairwise([*starts, len(indices)]):
        yield indices[at], at, end - at


def _root_of(mesh: Any) -> Any:
    """The mesh that a mesh was cut out of."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed import device_mesh

    return device_mesh._mesh_resources.get_root_mesh(mesh)


def _place_outside(
    name: str, inner: torch.Tensor, root: torch.Tensor, rank: int, ranks: int
) -> tuple[int, int]:
    """Where a mesh lies in its root, along the dimensions of the root that it does not run along."""
    hint = "make the mesh a part of one over all ranks: init_device_mesh(…)['tp']"
    if root.numel() != ranks:
        raise TreeInvalid(name=name, reason=f"its mesh covers {inner.numel()} of {ranks} ranks", hint=hint)
    places = torch.stack([(root == member).nonzero()[0] for member in inner.flatten().tolist()])
    fixed = [dim for dim in range(root.ndim) if len(set(places[:, dim].tolist())) == 1]
    across = prod(root.shape[dim] for dim in range(root.ndim) if dim not in fixed)
    if across != inner.numel():
        raise TreeInvalid(
            name=name, reason=f"its mesh {inner.tolist()} is not part of {root.tolist()}", hint=hint
        )
    mine = (root == rank).nonzero()[0].tolist()
    number, count = 0, 1
    for dim in fixed:
        number = number * root.shape[dim] + mine[dim]
        count *= root.shape[dim]
    return number, count
