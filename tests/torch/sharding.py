"""What real processes do in tests of states: a model that is moved from layout to layout, over real gloo groups.

Run as ``python -m tests.torch.sharding OUT``. It imports torch once and forks its gangs. Every gang makes a fresh model and a fresh
optimizer, resumes from what was saved before, holds every tensor against the reference, and saves in its own layout.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import penstock as ps
from penstock import errors
from penstock.torch import state
from penstock.torch.tree.tensors import held_of
from tests.torch.processes import forked, statuses

Wrap = Callable[[nn.Module], nn.Module]
Work = Callable[[Path, ps.Checkpoints], None]


class Net(nn.Module):
    """Tied weights, a frozen layer, buffers, and lengths that no number of ranks divides."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.up = nn.Linear(6, 8)
        self.down = nn.Linear(8, 6)
        self.odd = nn.Linear(6, 3)
        self.frozen = nn.Linear(3, 6).requires_grad_(False)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("passing", torch.zeros(2), persistent=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = self.table(rows)
        hidden = hidden + self.down(torch.relu(self.up(hidden)))
        hidden = hidden + self.frozen(self.odd(hidden))
        return self.head(self.norm(hidden))


def fresh(wrap: Wrap, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model in a layout, and an optimizer that has not stepped."""
    torch.manual_seed(seed)
    model = wrap(Net())
    decayed = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    plain = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
    return model, torch.optim.AdamW(groups, lr=1e-2, foreach=False)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        rows = torch.arange(8).reshape(2, 4) + step
        loss = model(rows).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def whole(tree: Any) -> dict[str, torch.Tensor]:
    """Every tensor of the model and the optimizer as one rank would have it, gathered by PyTorch itself."""
    tensors = {}
    optimizer = tree.optimizers[0]
    model = getattr(tree.model, "module", tree.model)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name != "passing":
            tensors[f"model/{name}"] = _full(tensor)
        for key, value in optimizer.state.get(tensor, {}).items():
            tensors[f"optimizer/{name}/{key}"] = _full(value)
    return tensors


def _full(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def move(out: Path, checkpoints: ps.Checkpoints, wrap: Wrap) -> None:
    """Load what was saved last, in whatever layout, compare, and save in this one."""
    model, optimizer = fresh(wrap, seed=5)
    tree = state(model, optimizer)
    checkpoint = checkpoints.resume(into=tree)
    assert checkpoint is not None
    expected = torch.load(out / "reference.pt")
    ours = whole(tree)
    assert ours.keys() == expected.keys(), ours.keys() ^ expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(ours[name], tensor), (checkpoint.step, name)
    # Every layout cuts other pieces: what is written is not what was there.
    with torch.no_grad():
        tree.model.get_buffer("module.seen" if hasattr(model, "module") else "seen")[0] += 1
    saved = checkpoints.save(checkpoint.step + 1, tree).wait()
    if tree.rank == 0:
        expected["model/seen"][0] += 1
        torch.save(expected, out / "reference.pt")
        _record(out, saved)
    if distributed.is_initialized():
        distributed.barrier()


def _record(out: Path, saved: ps.Checkpoint) -> None:
    """Which boxes some tensors were written in."""
    pieces = {
        name: sorted([list(piece.offset), list(piece.shape)] for piece in saved.manifest.tensors[name].pieces)
        for name in ("model/up.weight", "model/odd.weight", "optimizer/down.weight/exp_avg", "model/seen")
    }
    (out / f"pieces-{saved.step}.json").write_text(json.dumps(pieces))


def shards(model: nn.Module, mesh: Any) -> nn.Module:
    """FSDP2 over a mesh; over two dimensions, the first one holds replicas. Tied modules share a group, as FSDP2 asks."""
    for layer in (model.up, model.down, model.odd, model.frozen):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def columns(model: nn.Module, mesh: Any) -> nn.Module:
    """Tensor parallel, with a table that is cut along its second dimension."""
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel(), "odd": ColwiseParallel()}
    parallelize_module(model, mesh, plan)
    cut = nn.Parameter(distribute_tensor(model.table.weight.detach(), mesh, [Shard(1)]))
    model.table.weight = model.head.weight = cut
    return model


def both(model: nn.Module, grid: Any) -> nn.Module:
    """FSDP2 over tensor parallel: shards of shards, which PyTorch calls strided."""
    columns(model, grid["tp"])
    for layer in (model.up, model.down, model.odd):
        fully_shard(layer, mesh=grid["dp"])
    return model


def first(out: Path, checkpoints: ps.Checkpoints) -> None:
    """Four ranks train, save, and write down what the tensors are."""
    mesh = init_device_mesh("cpu", (4,))
    model, optimizer = fresh(lambda net: shards(net, mesh), seed=3)
    train(model, optimizer, 3)
    with torch.no_grad():
        model.seen.copy_(torch.tensor([1.0, 2.0, 3.0]))
    tree = state(model, optimizer)
    reference = whole(tree)
    saved = checkpoints.save(0, tree).wait()
    if tree.rank == 0:
        torch.save(reference, out / "reference.pt")
        _record(out, saved)
    _check_boxes(tree)


def _check_boxes(tree: Any) -> None:
    """Our boxes are those that PyTorch computes for shards that are not strided."""
    for name, parameter in tree.model.named_parameters():
        if name == "head.weight":
            continue
        (held,) = [held for held in tree.held() if held.name == f"model/{name}"]
        shape, offset = compute_local_shape_and_global_offset(
            parameter.shape, parameter.device_mesh, parameter.placements
        )
        assert held.box.shape == shape
        assert held.box.offset == offset or not held.box.elements


def refuse(mesh: DeviceMesh) -> None:
    """What cannot be saved over two ranks."""
    whole_tensor = DTensor.from_local(torch.ones(4), mesh, [Partial()])
    with pytest.raises(errors.TreeInvalid, match="neither a shard nor a replica"):
        held_of("sum", whole_tensor, distributed.get_rank(), 2)
    part = DTensor.from_local(torch.ones(4), mesh, [Shard(0)])
    with pytest.raises(errors.TreeInvalid, match="covers 2 of 6 ranks"):
        held_of("part", part, distributed.get_rank(), 6)


def second(out: Path, checkpoints: ps.Checkpoints) -> None:
    """Two ranks."""
    mesh = init_device_mesh("cpu", (2,))
    move(out, checkpoints, lambda net: shards(net, mesh))
    refuse(mesh)


def alone(out: Path) -> None:
    """One process, without a group."""
    with ps.Checkpoints(out / "checkpoints") as checkpoints:
        move(out, checkpoints, lambda net: net)


def last(out: Path, checkpoints: ps.Checkpoints) -> None:
    """Four ranks in every layout there is, one after another; and training goes on as it would have."""
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    line = init_device_mesh("cpu", (4,))
    move(out, checkpoints, lambda net: shards(net, grid))
    move(out, checkpoints, lambda net: columns(net, line))
    move(out, checkpoints, lambda net: both(net, grid))
    move(out, checkpoints, lambda net: columns(net, grid["tp"]))
    move(out, checkpoints, DistributedDataParallel)
    model, optimizer = fresh(lambda net: shards(net, line), seed=9)
    checkpoints.resume(into=state(model, optimizer))
    train(model, optimizer, 2)
    never, stayed = fresh(lambda net: shards(net, line), seed=3)
    train(never, stayed, 3)
    train(never, stayed, 2)
    ours, theirs = whole(state(model, optimizer)), whole(state(never, stayed))
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items() if name != "model/seen")


def rank(number: int, world: int, work: Work, out: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{out}/rendezvous-{work.__name__}", rank=number, world_size=world
    )
    with ps.Checkpoints(out / "checkpoints", rank=number, ranks=world, token=work.__name__) as checkpoints:
        work(out, checkpoints)
    distributed.destroy_process_group()


def gang(world: int, work: Work, out: Path) -> None:
    children = [forked(partial(rank, number, world, work, out)) for number in range(world)]
    assert statuses(children) == [0] * world, work.__name__


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    gang(4, first, folder)
    gang(2, second, folder)
    assert statuses([forked(partial(alone, folder))]) == [0]
    gang(4, last, folder)
