"""What a save found out about tensors is used by the next one, and whatever has changed in between is seen all the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from penstock.torch import State, state
from tests.torch.boxes import taken


class Net(nn.Module):
    """Parameters and buffers of several forms."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 4)
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("mask", torch.arange(12.0).reshape(3, 4))


def _program() -> tuple[Net, torch.optim.Optimizer, State]:
    torch.manual_seed(3)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    _step(model, optimizer)
    return model, optimizer, state(model, optimizer)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def _contents(tree: State) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {held.name: (held.dtype, held.shape, bytes(taken(held))) for held in tree.held()}


def _replaced(model: Net, optimizer: torch.optim.Optimizer) -> None:
    model.second.weight = nn.Parameter(torch.randn(4, 5))
    optimizer.add_param_group({"params": [model.second.weight]})
    del optimizer.param_groups[0]["params"][2]
    optimizer.state = type(optimizer.state)(
        dict, {key: kept for key, kept in optimizer.state.items() if key.shape != (4, 5)}
    )


def _other_moment(model: Net, optimizer: torch.optim.Optimizer) -> None:
    optimizer.state[model.first.weight]["exp_avg"] = torch.randn(5, 6)


def _further_key(model: Net, optimizer: torch.optim.Optimizer) -> None:
    optimizer.state[model.first.bias]["slow"] = torch.randn(5)


def _data(model: Net, _: Any) -> None:
    model.first.weight.data = torch.randn(5, 6)


def _strided(model: Net, _: Any) -> None:
    model.first.weight.data = torch.randn(6, 5).t()


def _expanded(model: Net, _: Any) -> None:
    model.mask = torch.randn(3, 1).expand(3, 4)


def _moved_inside(model: Net, _: Any) -> None:
    """The same storage, another place in it."""
    shared = torch.randn(60)
    model.first.weight.data = shared[:30].view(5, 6)
    model.first.weight.data = shared[30:].view(5, 6)


def _shorter(model: Net, _: Any) -> None:
    model.mask.resize_(2, 4)


def _type(model: Net, _: Any) -> None:
    model.norm.half()


def _tied(model: Net, _: Any) -> None:
    model.register_parameter("again", model.first.weight)


def _without(model: Net, _: Any) -> None:
    del model.mask


def _renamed(model: Net, _: Any) -> None:
    model.other = model._buffers.pop("mask")


def _swapped(model: Net, _: Any) -> None:
    """Two of one form change places."""
    norm = model.norm
    norm._buffers["running_mean"], norm._buffers["running_var"] = norm.running_var, norm.running_mean


def _passing(model: Net, _: Any) -> None:
    model._non_persistent_buffers_set.add("mask")


def _in_place(model: Net, _: Any) -> None:
    model.first.weight.data.zero_()


def _pending(model: Net, _: Any) -> None:
    model.first.weight.grad = torch.randn(5, 6)


def _frozen(model: Net, _: Any) -> None:
    model.first.requires_grad_(False)


_CHANGES = [
    _data,
    _expanded,
    _frozen,
    _further_key,
    _in_place,
    _moved_inside,
    _other_moment,
    _passing,
    _pending,
    _renamed,
    _replaced,
    _shorter,
    _step,
    _strided,
    _swapped,
    _tied,
    _type,
    _without,
]


@pytest.mark.parametrize("change", _CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_a_change_between_saves_is_seen(change: Callable[[Net, torch.optim.Optimizer], None]) -> None:
    """Goal: what is held is what a tree says that looks for the first time. Method: look twice, so that everything is known; change something,
    and compare bytes, types, shapes and names with those of a fresh tree; and again, when the change itself is known."""
    model, optimizer, tree = _program()
    before = [_contents(tree) for _ in range(2)]
    change(model, optimizer)
    fresh = _contents(state(model, optimizer))

    assert before[0] == before[1]
    assert [_contents(tree) for _ in range(3)] == [fresh] * 3


def test_memory_that_the_program_lets_go_of_is_not_kept() -> None:
    """Goal: a replaced tensor costs nothing until the next save. Method: look until everything is known, replace tensors, and ask whether
    their storages are still there."""
    model, optimizer, tree = _program()
    for _ in range(3):
        tree.held()
    old = [model.mask, model.first.weight.data, optimizer.state[model.first.bias]["exp_avg"]]
    storages = [StorageWeakRef(tensor.untyped_storage()) for tensor in old]
    old.clear()
    model.mask = torch.zeros(3, 4)
    model.first.weight.data = torch.zeros(5, 6)
    optimizer.state[model.first.bias]["exp_avg"] = torch.zeros(5)

    assert [storage.expired() for storage in storages] == [True] * 3


def test_memory_is_there_as_long_as_what_is_held_is_used() -> None:
    """Goal: a thread that replaces tensors during a save pulls no memory from under it. Method: hold what a look gives, replace a tensor, and
    read what it was."""
    model, _, tree = _program()
    expected = _contents(tree)
    tree.held()
    held = tree.held()
    storage = StorageWeakRef(model.first.weight.untyped_storage())
    model.first.weight.data = torch.zeros(5, 6)

    assert not storage.expired()
    assert {part.name: (part.dtype, part.shape, bytes(taken(part))) for part in held} == expected
    del held
    assert storage.expired()
