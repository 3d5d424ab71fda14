"""What real ranks do in tests of pending gradients, over gloo: run as ``python -m tests.torch.pending_gradients OUT``.

Two ranks accumulate without reducing, so their gradients differ, and save. Two fresh ranks get each its own back; one rank alone is refused.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import penstock as ps
from penstock import errors
from penstock.torch import state
from tests.torch.processes import forked, statuses


def made(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model: nn.Module = nn.Linear(3, 2)
    if distributed.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, state(model, optimizer)


def backward(model: nn.Module, rank: int) -> None:
    model(torch.full((1, 3), 1.0 + rank)).square().sum().backward()


def rank_of_two(out: Path, rank: int, job: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{out}/{job}", rank=rank, world_size=2)
    model, optimizer, tree = made(1 if job == "save" else 2)
    with ps.Checkpoints(out / "two", rank=rank, ranks=2, token=job) as checkpoints:
        if job == "save":
            backward(model, 0)
            optimizer.step()
            optimizer.zero_grad()
            with model.no_sync():
                backward(model, rank)
            checkpoint = checkpoints.save(1, tree).wait()
            assert "gradient/weight" in checkpoint.manifest.own[rank].tensors
            torch.save(model.module.weight.grad, out / f"gradient-{rank}.pt")
        else:
            checkpoints.resume(tree)
            assert torch.equal(model.module.weight.grad, torch.load(out / f"gradient-{rank}.pt"))
            with (
                ps.Checkpoints(out / "one", rank=rank, ranks=2, read_only=True) as others,
                pytest.raises(errors.LayoutChanged, match="gradient/"),
            ):
                others.load(others.list()[-1], tree)
    distributed.barrier()


def alone(out: Path) -> None:
    """A program of one rank with pending gradients of its own."""
    model, _, tree = made(3)
    before = model.weight.clone()
    with ps.Checkpoints(out / "two", read_only=True) as checkpoints:
        checkpoint = checkpoints.list()[-1]
        with pytest.raises(errors.LayoutChanged, match="gradient/"):
            checkpoints.load(checkpoint, tree)
        assert torch.equal(model.weight, before)
        assert model.weight.grad is None
        checkpoints.load(checkpoint, tree, only=("model", "optimizer"))
        assert not torch.equal(model.weight, before)
    backward(model, 5)
    with ps.Checkpoints(out / "one") as checkpoints:
        checkpoints.save(1, tree).wait()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    assert statuses([forked(partial(rank_of_two, folder, rank, "save")) for rank in range(2)]) == [0, 0]
    assert torch.load(folder / "gradient-0.pt").tolist() != torch.load(folder / "gradient-1.pt").tolist()
    assert statuses([forked(partial(alone, folder))]) == [0]
    assert statuses([forked(partial(rank_of_two, folder, rank, "load")) for rank in range(2)]) == [0, 0]
