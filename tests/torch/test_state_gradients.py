"""Gradients that no optimizer has used yet are state; those that are used up are not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from torch import nn

import penstock as ps
from penstock.torch import state
from penstock.torch.tree.gradients import is_pending
from tests.torch.program import run_program

Loop = Callable[[nn.Module, torch.optim.Optimizer, int], None]


def made(seed: int, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
    return model, optimizer, state(model, optimizer)


def backward(model: nn.Module, step: int) -> None:
    rows = torch.arange(12.0).reshape(2, 6) / (step + 1)
    model(rows).square().sum().backward()


def accumulating(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """An optimizer step every four steps."""
    backward(model, step)
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()


def to_zero(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    backward(model, step)
    if step % 3 == 2:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def before(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """The ordinary loop, which leaves gradients behind."""
    optimizer.zero_grad()
    backward(model, step)
    optimizer.step()


def after(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    backward(model, step)
    optimizer.step()
    optimizer.zero_grad()


def bits(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[bytes]:
    moments = [optimizer.state.get(parameter, {}) for parameter in model.parameters()]
    tensors = [*model.parameters(), *(entry[key] for entry in moments for key in sorted(entry))]
    return [tensor.detach().numpy().tobytes() for tensor in tensors]


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=str)
@pytest.mark.parametrize("loop", [accumulating, to_zero, before, after])
def test_a_loop_that_is_saved_anywhere_goes_on_bit_for_bit(
    tmp_path: Path, loop: Loop, options: dict[str, bool]
) -> None:
    """Goal: bit-equal also between the steps of an optimizer. Method: save after every step, resume in fresh objects, train to the end."""
    with ps.Checkpoints(tmp_path) as checkpoints:
        model, optimizer, tree = made(1, **options)
        for step in range(9):
            loop(model, optimizer, step)
            checkpoints.save(step, tree).wait()
        for step in range(9):
            other, fresh, empty = made(2, **options)
            checkpoints.load(checkpoints.at(step), empty)
            for later in range(step + 1, 9):
                loop(other, fresh, later)
            assert bits(other, fresh) == bits(model, optimizer), step


@pytest.mark.parametrize("loop", [to_zero, before, after])
def test_spent_gradients_are_not_saved(tmp_path: Path, loop: Loop) -> None:
    """Goal: the ordinary loops save as many bytes as the parameters and moments have."""
    model, optimizer, tree = made(1)
    with ps.Checkpoints(tmp_path) as checkpoints:
        for step in range(6):
            loop(model, optimizer, step)
        checkpoint = checkpoints.save(1, tree).wait()
        # A state that is made only now knows it too.
        assert checkpoints.save(2, state(model, optimizer)).wait().bytes == checkpoint.bytes
    tensors = [*model.parameters(), *(v for kept in optimizer.state.values() for v in kept.values())]
    assert checkpoint.bytes == sum(tensor.nbytes for tensor in tensors)
    assert not any(name.startswith("gradient/") for name in checkpoint.manifest.tensors)


def test_going_back_drops_what_was_accumulated_since(tmp_path: Path) -> None:
    model, optimizer, tree = made(1)
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoint = checkpoints.save(0, tree).wait()
        backward(model, 0)
        checkpoints.load(checkpoint, tree, only="model")
        assert all(is_pending(parameter.grad) for parameter in model.parameters())
        checkpoints.load(checkpoint, tree)
    assert all(parameter.grad is None for parameter in model.parameters())
    # What a step has used stays where it is.
    before(model, optimizer, 1)
    assert not any(is_pending(parameter.grad) for parameter in model.parameters())
    backward(model, 2)
    assert all(is_pending(parameter.grad) for parameter in model.parameters())


def test_gradients_are_left_out_where_wished(tmp_path: Path) -> None:
    model, optimizer, _ = made(1)
    backward(model, 0)
    tree = state(model, optimizer, skip=("gradient",))
    assert not any(held.name.startswith("gradient/") for held in tree.held())
    # One that nobody steps has no gradients to keep.
    assert not any(held.name.startswith("gradient/") for held in state(model).held())
    assert state(model, optimizer).digest() == tree.digest()


def test_ranks_get_their_own_gradients_back_and_other_layouts_are_refused(tmp_path: Path) -> None:
    run_program("pending_gradients", tmp_path)


class Counting(nn.Module):
    """Counts its calls in a plain attribute and in a buffer that is not persistent."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.calls = 0
        self.width = 6
        self.register_buffer("scale", torch.ones(()), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.scale.add_(1)
        return self.inner(inputs)


def test_what_the_state_does_not_hold_is_named_once(tmp_path: Path) -> None:
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tree = state(model, optimizer)
    assert tree.unpinned() == ()
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, tree).wait()
        before(model, optimizer, 0)
        with pytest.warns(UserWarning, match="no state dict has it") as warned:
            checkpoints.save(1, tree).wait()
        assert sorted(str(warning.message).split()[0] for warning in warned) == ["model/calls", "model/scale"]
        before(model, optimizer, 1)
        # Said already: warnings are errors in this suite.
        checkpoints.save(2, tree).wait()
    assert len(tree.unpinned()) == 2


def leaves_out(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """The first layer gets no gradient for a while, as experts and heads without a sample; zeros, not nothing, reach the optimizer."""
    optimizer.zero_grad(set_to_none=False)
    rows = torch.arange(10.0).reshape(2, 5) / (step + 1)
    last = list(model.children())[-1]
    if step < 2:
        backward(model, step)
    else:
        last(rows).square().sum().backward()
    optimizer.step()


class Memory:
    """An object of the program's own."""

    total = 0.0


class Recurrent(nn.Module):
    """Keeps what it has seen where no state dict looks."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.hidden: torch.Tensor | None = None
        self.never: torch.Tensor | None = None
        self.rows = [torch.zeros(2)]
        self.memory = Memory()
        self.name: str | None = None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(rows)
        self.hidden = out.detach()
        self.rows.append(self.hidden)
        self.memory.total += 1.0
        self.later = 3
        self.name = "text is no state"
        return out


def test_what_begins_as_nothing_and_what_objects_keep_is_named_too() -> None:
    """Goal: nothing that training changes is lost without a word. Method: a hidden state that begins as None, one that is in a list of tensors, one in
    an object that the module holds, and one that is no attribute before the first pass."""
    model = Recurrent()
    tree = state(model)
    assert tree.unpinned() == ()
    model(torch.ones(1, 2))
    named = [text.split(" ")[0] for text in tree.unpinned()]
    assert named == ["model/hidden", "model/rows", "model/later", "model/memory.total"]


def test_gradients_that_are_zeroed_and_not_thrown_away_come_back_as_zeros(tmp_path: Path) -> None:
    whole, optimizer, tree = made(0)
    with ps.Checkpoints(tmp_path) as checkpoints:
        for step in range(6):
            leaves_out(whole, optimizer, step)
            if step == 3:
                checkpoint = checkpoints.save(step, tree).wait()
                assert not [name for name in checkpoint.manifest.tensors if name.startswith("gradient/")]
    again, resumed, tree = made(1)
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoints.resume(tree)
        assert not any(is_pending(parameter.grad) for parameter in again.parameters())
        leaves_out(again, resumed, 4)
        checkpoints.save(4, tree).wait()
    third, resumed, tree = made(2)
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoints.resume(tree)
        leaves_out(third, resumed, 5)
    assert bits(third, resumed) == bits(whole, optimizer)


def test_gradients_that_no_optimizer_has_are_named(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    head = state(model, torch.optim.AdamW(model[2].parameters()))
    by_hand = state(model)
    assert head.unpinned() == by_hand.unpinned() == ()
    backward(model, 0)
    assert "0.weight and 1 more" in head.unpinned()[0]
    assert "0.weight and 3 more" in by_hand.unpinned()[0]
    with (
        ps.Checkpoints(tmp_path) as checkpoints,
        pytest.warns(UserWarning, match="belongs to no optimizer"),
    ):
        checkpoints.save(0, by_hand).wait()
    model[0].zero_grad()
    assert head.unpinned() == ()


def test_an_accumulation_that_accelerate_counts_is_named_while_it_is_half_done() -> None:
    """Goal: a resumed program does not step after other batches in silence. Method: the real wrapper, between its steps and after one."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Linear(2, 2)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    tree = state(model, optimizer)
    seen = []
    for _ in range(4):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.ones(1, 2)).sum())
            optimizer.step()
            optimizer.zero_grad()
        seen.append([reason for reason in tree.unpinned() if "accelerator.step = step" in reason])
    assert [len(reasons) for reasons in seen] == [1, 0, 1, 0]
