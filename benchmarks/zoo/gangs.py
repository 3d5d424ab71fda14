"""Programs of several ranks: DDP, FSDP2, HSDP and tensor parallel, over gloo, which shards on the processor alone."""

import contextlib
from collections.abc import Callable

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from benchmarks.zoo.case import Case, Program, ordinary, perceptron, rows

_Wrap = Callable[[nn.Module], nn.Module]


def _net(*, norm: bool = False) -> nn.Sequential:
    inner = nn.BatchNorm1d(8) if norm else nn.LayerNorm(8)
    return nn.Sequential(nn.Linear(6, 8), inner, nn.Tanh(), nn.Linear(8, 4))


def _training(model: nn.Module, *, every: int = 1, synchronised: bool = True) -> Program:
    """A loop over this rank's rows; without synchronisation only the last of ``every`` steps reduces."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rank = distributed.get_rank()

    def train(step: int) -> None:
        is_last = step % every == every - 1
        quiet = contextlib.nullcontext()
        if not synchronised and isinstance(model, DistributedDataParallel) and not is_last:
            quiet = model.no_sync()
        if not synchronised and hasattr(model, "set_requires_gradient_sync"):
            model.set_requires_gradient_sync(is_last)
        with quiet:
            (model(rows(step * 7 + rank, 5, 6)).square().mean() / every).backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()

    return Program(model, [optimizer], train)


def _sharded(model: nn.Module, *shape: int) -> nn.Module:
    names = ("replicate", "shard")[-len(shape) :]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    fully_shard(model[0], mesh=mesh)
    return fully_shard(model, mesh=mesh)


_PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def _columns() -> nn.Module:
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    return parallelize_module(perceptron(), mesh, _PLAN)


def _both() -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return fully_shard(parallelize_module(perceptron(), mesh["tp"], _PLAN), mesh=mesh["dp"])


def _with_average() -> Program:
    program = _training(DistributedDataParallel(_net(norm=True)))
    average = AveragedModel(program.model.module)
    plain = program.train

    def train(step: int) -> None:
        plain(step)
        average.update_parameters(program.model.module)

    return Program(program.model, program.optimizers, train, None, {"average": average})


def _compressed() -> Program:
    """Gradients that PowerSGD compresses: it feeds errors back, and no state dict has them."""
    model = DistributedDataParallel(_net())
    hook_state = PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.5)
    model.register_comm_hook(hook_state, powerSGD_hook)
    return _training(model)


def _synchronised() -> Program:
    """Statistics of BatchNorm over all ranks, which PyTorch computes on accelerators only."""
    net = nn.SyncBatchNorm.convert_sync_batchnorm(_net(norm=True))
    return _training(DistributedDataParallel(net))


def _bucketed(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def _stage() -> Program:
    """A stage of a pipeline, whose names a list of all stages gives; each rank has its own."""
    rank = distributed.get_rank()
    stages = nn.ModuleList(
        [nn.Linear(6, 8) if rank == 0 else nn.Identity(), nn.Linear(8, 4) if rank else nn.Identity()]
    )
    optimizer = torch.optim.AdamW(stages.parameters(), lr=1e-2)

    def train(step: int) -> None:
        optimizer.zero_grad()
        if rank == 0:
            sent = stages[0](rows(step, 5, 6))
            gradient = torch.empty_like(sent)
            distributed.send(sent.detach(), 1)
            distributed.recv(gradient, 1)
            sent.backward(gradient)
        else:
            received = torch.empty(5, 8)
            distributed.recv(received, 0)
            stages[1](received.requires_grad_()).square().mean().backward()
            distributed.send(received.grad, 0)
        optimizer.step()

    return Program(stages, [optimizer], train)


def _stage_with_the_name_of_another() -> Program:
    model = nn.Linear(6, 8) if distributed.get_rank() == 0 else nn.Linear(8, 6)
    return ordinary(model, lambda step: model(rows(step, 5, model.in_features)).square().mean())


def _apart(*, averager: bool) -> Program:
    """Ranks train apart, and are averaged every second step: by the number of the step, or by a count of PyTorch's averager."""
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counting = PeriodicModelAverager(period=2) if averager else None

    def train(step: int) -> None:
        optimizer.zero_grad()
        model(rows(10 * step + distributed.get_rank(), 5, 6)).square().mean().backward()
        optimizer.step()
        if counting is not None:
            counting.average_parameters(model.parameters())
        elif step % 2:
            for parameter in model.parameters():
                distributed.all_reduce(parameter.data)
                parameter.data /= 2

    return Program(model, [optimizer], train)


CASES = [
    Case("DDP", lambda: _training(DistributedDataParallel(_net())), ranks=2),
    Case("DDP with BatchNorm", lambda: _training(DistributedDataParallel(_net(norm=True))), ranks=2),
    Case("DDP with SyncBatchNorm", _synchronised, ranks=2, where="cuda"),
    Case("DDP, gradients in buckets", lambda: _training(_bucketed(_net())), ranks=2),
    Case(
        "DDP that accumulates without reducing",
        lambda: _training(DistributedDataParallel(_net()), every=4, synchronised=False),
        ranks=2,
        steps=(6, 4),
    ),
    Case(
        "DDP that accumulates in buckets",
        lambda: _training(_bucketed(_net()), every=4, synchronised=False),
        ranks=2,
        steps=(6, 4),
    ),
    Case("DDP with an average", _with_average, ranks=2),
    Case("DDP that compresses gradients", _compressed, "unpinned", ranks=2),
    Case("a stage of a pipeline", _stage, ranks=2, where="cpu"),
    Case("stages under one name", _stage_with_the_name_of_another, "refused", ranks=2, where="cpu"),
    Case("ranks that train apart", lambda: _apart(averager=False), ranks=2, where="cpu"),
    Case("ranks that an averager counts", lambda: _apart(averager=True), "unpinned", ranks=2, where="cpu"),
    Case("FSDP2", lambda: _training(_sharded(_net(), 2)), ranks=2, where="cpu"),
    Case(
        "FSDP2 that accumulates",
        lambda: _training(_sharded(_net(), 2), every=4),
        ranks=2,
        steps=(6, 4),
        where="cpu",
    ),
    Case(
        "FSDP2 that accumulates without reducing",
        lambda: _training(_sharded(_net(), 2), every=4, synchronised=False),
        "refused",
        ranks=2,
        steps=(6, 4),
        where="cpu",
    ),
    Case("HSDP", lambda: _training(_sharded(_net(), 2, 2)), ranks=4, where="cpu"),
    Case("tensor parallel", lambda: _training(_columns()), ranks=2, where="cpu"),
    Case("FSDP2 over tensor parallel", lambda: _training(_both()), ranks=4, where="cpu"),
]
