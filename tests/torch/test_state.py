"""A training run goes on from its state as if nothing had happened, and what cannot be saved is named."""

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.optim.swa_utils import AveragedModel
from torch.testing._internal.two_tensor import TwoTensor

import penstock as ps
from penstock import errors
from penstock.torch import state
from penstock.torch.device.mover import SAFETENSORS_NAMES
from penstock.torch.tree.tensors import held_of
from tests.torch.boxes import Copies, load, put, save, taken


class Net(nn.Module):
    """Randomness, a buffer that every forward writes to, tied weights, and a state of its own making."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(13, 8)
        self.hidden = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.3))
        self.head = nn.Linear(8, 13, bias=False)
        self.head.weight = self.table.weight
        self.calls = 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.head(self.hidden(self.table(rows)))

    def get_extra_state(self) -> dict[str, Any]:
        return {"calls": self.calls, "scale": torch.full((2,), float(self.calls))}

    def set_extra_state(self, extra: dict[str, Any]) -> None:
        self.calls = extra["calls"]
        assert extra["scale"].tolist() == [float(self.calls)] * 2


class Run:
    """A small training run that uses every random generator there is."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 4], gamma=0.5)
        self.average = AveragedModel(self.model)
        self.extra = {"average": self.average, "epoch": 0, "total": torch.zeros((), dtype=torch.float64)}
        self.tree = state(self.model, self.optimizer, scheduler=self.scheduler, extra=self.extra)

    def train(self, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            shift = random.randrange(5) + int(np.random.randint(5))
            loss = self.model((torch.arange(4) + shift) % 13).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.average.update_parameters(self.model)
            self.extra["epoch"] += 1
            self.extra["total"] += loss.item()
            losses.append(loss.item())
        return losses


def test_training_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Goal: R1 for one process. Method: save after three steps, go on for four; load into a run of another seed whose
    optimizer never stepped, and compare losses, parameters, moments, buffers, averages and plain values."""
    run = Run(1)
    run.train(3)
    with ps.Checkpoints(tmp_path / "ck") as checkpoints:
        checkpoints.save(3, run.tree).wait()
        losses = run.train(4)
        other = Run(2)
        checkpoint = checkpoints.latest()
        assert checkpoint is not None
        checkpoints.load(checkpoint, into=other.tree)

        assert other.extra["epoch"] == 3
        assert other.train(4) == losses
        assert (other.extra["epoch"], other.extra["total"]) == (7, run.extra["total"])
        assert other.model.calls == run.model.calls == 7
        assert other.model.head.weight is other.model.table.weight
        ours = {held.name: bytes(taken(held)) for held in other.tree.held()}
        assert ours == {held.name: bytes(taken(held)) for held in run.tree.held()}
        assert other.tree.values() == run.tree.values()
        assert {"optimizer/table.weight/exp_avg", "extra/average/n_averaged", "extra/total"} <= ours.keys()
        assert "model/head.weight" not in ours


def test_what_was_saved_is_the_step_and_not_what_came_after(tmp_path: Path) -> None:
    """Goal: S3 with S5. Method: train on while the save is under way; load and compare with a copy made at the save."""
    run = Run(1)
    run.train(2)
    expected = {held.name: bytes(taken(held)) for held in run.tree.held()}
    with ps.Checkpoints(tmp_path / "ck") as checkpoints:
        pending = checkpoints.save(2, run.tree)
        run.train(3)
        other = Run(5)
        checkpoints.load(pending.wait(), into=other.tree)
    assert {held.name: bytes(taken(held)) for held in other.tree.held()} == expected


def test_a_dict_of_tensors_is_a_tree_too(tmp_path: Path) -> None:
    saved = {"w": torch.arange(12.0).reshape(3, 4).t(), "n": [torch.tensor(3), 7, "text"]}
    with ps.Checkpoints(tmp_path / "ck") as checkpoints:
        checkpoint = checkpoints.save(1, saved).wait()
        empty = {"w": torch.zeros(4, 3), "n": [torch.tensor(0), 0, ""]}
        checkpoints.load(checkpoint, into=empty)
    assert torch.equal(empty["w"], saved["w"])
    assert empty["n"] == [torch.tensor(3), 7, "text"]


@pytest.mark.parametrize("dtype", SAFETENSORS_NAMES, ids=str)
def test_every_type_comes_back_by_its_bits(dtype: torch.dtype) -> None:
    """Method: random bits in tensors of several forms, taken out in odd stretches and put into others of the same form."""
    bits = torch.randint(0, 2 if dtype is torch.bool else 256, (6, 4, 5 * dtype.itemsize), dtype=torch.uint8)
    tensor = bits.view(dtype)
    forms = [tensor, tensor[1, 2, 3], tensor[:0], tensor.transpose(0, 2), tensor[::2, 1:, ::3], tensor[2].t()]
    for form in forms:
        (held,) = held_of("t", form, 0, 1)
        data = bytes(taken(held))
        assert data == form.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        empty = (
            torch.zeros_like(tensor).as_strided(form.shape, form.stride()) if form.numel() else form.clone()
        )
        put(held_of("t", empty, 0, 1)[0], data)
        assert bytes(taken(held_of("t", empty, 0, 1)[0])) == data


def test_names_do_not_depend_on_wrappers() -> None:
    inner = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    expected = [held.name for held in state(inner).held()]
    assert expected == ["model/0.weight", "model/0.bias", "model/1.weight", "model/1.bias"]
    compiled = torch.compile(inner, backend="eager")
    wrapped = nn.Sequential(checkpoint_wrapper(inner[0]), nn.DataParallel(inner[1]))
    for model in (compiled, nn.DataParallel(compiled), wrapped):
        assert [held.name for held in state(model).held()] == expected


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.empty(2, device="meta"), "meta tensor"),
        (torch.eye(3).to_sparse(), "layout"),
        (torch.zeros(2, dtype=torch.complex128), "complex128"),
        (torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "float4"),
        (torch.zeros(2, dtype=torch.complex64).conj(), "conjugate"),
        (TwoTensor(torch.zeros(2), torch.ones(2)), "a TwoTensor is more than its elements"),
        (nn.UninitializedParameter(), "no shape"),
    ],
)
def test_what_cannot_be_saved_is_named(tensor: torch.Tensor, reason: str) -> None:
    model = nn.Linear(1, 1)
    if isinstance(tensor, nn.UninitializedParameter):
        model.register_parameter("strange", tensor)
    else:
        model.register_buffer("strange", tensor)
    with pytest.raises(errors.TreeInvalid, match=f"'model/strange' in the tree.*{reason}") as caught:
        state(model).held()
    assert caught.value.hint


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_is_refused_by_its_name(layout: torch.layout) -> None:
    model = nn.Linear(1, 1)
    with warnings.catch_warnings():
        # PyTorch says that its interface may change.
        warnings.simplefilter("ignore")
        model.register_buffer(
            "rows", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
        )
    with pytest.raises(errors.TreeInvalid, match="'model/rows' in the tree: a nested tensor") as caught:
        state(model).held()
    assert caught.value.hint


def test_weights_that_were_tied_must_still_be(tmp_path: Path) -> None:
    tied, loose = Net(), Net()
    loose.head.weight = nn.Parameter(tied.head.weight.detach().clone())
    save(state(tied), tmp_path)
    with pytest.raises(
        errors.TreeInvalid, match=r"tied when saved: {'head.weight': 'table.weight'}, tied now: nothing"
    ):
        state(loose).load_values(state(tied).values())
    again = Net()
    load(state(again), tmp_path)
    assert torch.equal(again.head.weight, tied.table.weight)


def test_the_next_step_or_load_waits_for_copies_under_way() -> None:
    """Method: a save hands over copies that count; they are guarded once before the tensors change, and never again."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    order = []
    optimizer.register_step_post_hook(lambda *_: order.append("stepped"))
    copies = Copies()
    state(model, optimizer).on_save(copies)
    assert copies.guarded == 0
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.step()
    assert (copies.guarded, order) == (1, ["stepped", "stepped"])
    loading = Copies()
    state(model, optimizer).on_save(loading)
    model.load_state_dict(model.state_dict())
    assert loading.guarded == 1
    # Who trains without an optimizer that is known cannot be waited for.
    alone = Copies()
    state(nn.Linear(2, 2)).on_save(alone)
    assert alone.guarded == 1
    # Nobody steps: the oldest are waited for, so that they do not pile up.
    many = [Copies() for _ in range(9)]
    for batch in many:
        state(model, optimizer).on_save(batch)
    assert many[0].guarded
    assert not many[-1].guarded


def test_generators_are_left_alone_where_wished(tmp_path: Path) -> None:
    run = Run(1)
    tree = state(run.model, run.optimizer, skip=("rng", "model/hidden", "optimizer/param_groups"))
    assert tree.entries() == {}
    names = {held.name for held in tree.held()} | tree.values().keys()
    assert "model/table.weight" in names
    assert not any(name.startswith("model/hidden") or name == "optimizer/param_groups" for name in names)
    tree.load_entries(run.tree.entries())
    with pytest.raises(errors.TreeInvalid, match="no state of a random generator"):
        run.tree.load_entries({"torch.rng": {"torch": "AAAA"}})
    with pytest.raises(errors.UsageError, match="skip must be a tuple of names, got the text"):
        state(run.model, skip="optimizer")


def test_two_leaves_with_one_name_are_refused(tmp_path: Path) -> None:
    """Goal: neither is lost silently. Method: 1 and "1" as keys, in plain trees, documents and optimizers."""
    ones, zeros = torch.ones(1), torch.zeros(1)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model.weight]["parts"] = {1: ones, "1": zeros}
    trees = [
        {"a": {1: ones, "1": zeros}},
        {"a": {1: 3, "1": 4}},
        {"a": [5], "a/0": 6},
        state(model, extra={"x": {1: ones, "1": zeros}}),
        state(model, extra={"x": {1: ones}, "x/1": zeros}),
        state(model, optimizer),
    ]
    with ps.Checkpoints(tmp_path) as checkpoints:
        # Slashes in keys are escaped, so these are two names.
        checkpoints.save(0, trees.pop(2)).wait()
        checkpoints.save(1, trees.pop(3)).wait()
        for tree in trees:
            with pytest.raises(errors.TreeInvalid, match="two leaves have this name"):
                checkpoints.save(2, tree)


def test_expanded_buffers_are_filled_once(tmp_path: Path) -> None:
    model = nn.Module()
    model.register_buffer("wide", torch.tensor([[1.0], [float("nan")]]).expand(2, 5))
    other = nn.Module()
    other.register_buffer("wide", torch.zeros(2, 1).expand(2, 5))
    uneven = nn.Module()
    uneven.register_buffer("wide", torch.arange(10.0).reshape(2, 5))
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoint = checkpoints.save(1, state(model)).wait()
        checkpoints.load(checkpoint, state(other))
        assert torch.equal(other.wide.nan_to_num(7), model.wide.nan_to_num(7))
        differing = checkpoints.save(2, state(uneven)).wait()
        with pytest.raises(errors.TreeInvalid, match="expanded"):
            checkpoints.load(differing, state(other))


def test_a_save_leaves_tensors_as_resizable_as_they_were(tmp_path: Path) -> None:
    model = nn.Module()
    model.register_buffer("history", torch.ones(2))
    model.register_buffer("empty", torch.zeros(0))
    with ps.Checkpoints(tmp_path) as checkpoints:
        for length in (4, 8):
            checkpoint = checkpoints.save(length, state(model)).wait()
            model.history.resize_(length).fill_(length)
            model.empty.resize_(length).zero_()
        model.history.resize_(4)
        model.empty.resize_(4)
        checkpoints.load(checkpoint, state(model))
    assert model.history.tolist() == [4.0] * 4


def test_a_value_is_what_it_was_when_it_was_reported() -> None:
    total = torch.full((1,), 3.0)
    seen = state(nn.Linear(1, 1)).to_host(total)
    total.zero_()
    assert seen.item() == 3.0
