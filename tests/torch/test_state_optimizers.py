"""The state of optimizers comes back by the names of parameters: for any optimizer, grouping and history."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

import penstock as ps
from penstock import errors
from penstock.torch import state
from tests.torch.boxes import load, read, save, taken

Make = Callable[[Any], Optimizer]


class Preconditioned(Optimizer):
    """An optimizer with tensors in lists and dicts, and plain values, as Shampoo and its like have."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": torch.tensor(0.1), "powers": (1, 2)})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                known = self.state[parameter]
                if not known:
                    known["count"] = 0
                    known["sides"] = [torch.zeros(length, length) for length in parameter.shape]
                    known["by"] = {"a/b": torch.zeros(2), 3: (float("inf"), None)}
                known["count"] += 1
                for dim, side in enumerate(known["sides"]):
                    rows = (
                        parameter.grad.movedim(dim, 0).flatten(1)
                        if parameter.ndim > 1
                        else parameter.grad[:, None]
                    )
                    side += rows @ rows.T
                parameter -= group["lr"] * parameter.grad / (1 + known["sides"][0].trace())


MAKERS: dict[str, Make] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-2, amsgrad=True),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=1e-2),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=1e-2),
    "asgd": lambda parameters: torch.optim.ASGD(parameters, lr=1e-2),
    "rprop": lambda parameters: torch.optim.Rprop(parameters, lr=1e-2),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=1e-2),
    "tensors": lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(1e-2), foreach=False),
    "preconditioned": Preconditioned,
}


def net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def train(model: nn.Module, optimizer: Optimizer, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.arange(6.0).reshape(2, 3) + step).square().sum().backward()
        optimizer.step()


def contents(tree: Any) -> dict[str, bytes]:
    return {held.name: bytes(taken(held)) for held in tree.held()}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_fresh_optimizer_goes_on_as_the_old_one(tmp_path: Path, kind: str) -> None:
    """Goal: resume is exact without running a step first. Method: load into an optimizer without state, train on in both."""
    model = net(1)
    optimizer = MAKERS[kind](model.parameters())
    train(model, optimizer, 3)
    save(state(model, optimizer), tmp_path)
    other = net(2)
    fresh = MAKERS[kind](other.parameters())
    load(state(other, fresh), tmp_path)

    train(model, optimizer, 2)
    train(other, fresh, 2)

    assert contents(state(other, fresh)) == contents(state(model, optimizer))
    assert state(other, fresh).values() == state(model, optimizer).values()


def test_state_follows_its_parameter_into_another_grouping(tmp_path: Path) -> None:
    """Method: two groups by layer are loaded into three by kind, in another order; lr and decay follow the parameters."""
    model = net(1)
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.2}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.3)
    train(model, optimizer, 2)
    save(state(model, optimizer), tmp_path)
    other = net(2)
    regrouped = [[other[2].bias], [other[0].bias, other[0].weight], [other[2].weight]]
    fresh = torch.optim.AdamW([{"params": group} for group in regrouped], lr=9.0)
    load(state(other, fresh), tmp_path)

    assert [(group["lr"], group["weight_decay"]) for group in fresh.param_groups] == [
        (0.2, 0.3),
        (0.1, 0.3),
        (0.2, 0.3),
    ]
    assert fresh.param_groups[0]["betas"] == (0.9, 0.999)
    for old, new in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(optimizer.state[old]["exp_avg"], fresh.state[new]["exp_avg"])
    mixed = torch.optim.AdamW(other.parameters())
    with pytest.raises(errors.TreeInvalid, match="group 0 has parameters that were saved with different lr"):
        load(state(other, mixed), tmp_path)
    kept = state(other, mixed, skip=("optimizer/param_groups",))
    kept.load_values(state(model, optimizer).values())
    assert mixed.param_groups[0]["lr"] == 1e-3


def test_frozen_parameters_keep_what_they_had(tmp_path: Path) -> None:
    """Goal: nothing of a frozen parameter is lost. Method: freeze a layer that was trained, and one that never was."""
    model = net(1)
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, 2)
    model[2].requires_grad_(False)
    train(model, optimizer, 1)
    save(state(model, optimizer), tmp_path)
    other = net(2)
    other[0].bias.requires_grad_(False)
    other[2].requires_grad_(False)
    fresh = torch.optim.Adam(other.parameters())
    load(state(other, fresh), tmp_path)

    assert contents(state(other, fresh)) == contents(state(model, optimizer))
    assert other[0].bias not in fresh.state
    assert fresh.state[other[2].weight]["step"].item() == 2
    assert fresh.state[other[0].weight]["step"].item() == 3


def test_going_back_to_before_the_first_step_forgets_moments(tmp_path: Path) -> None:
    model = net(1)
    optimizer = torch.optim.Adam(model.parameters())
    save(state(model, optimizer), tmp_path)
    train(model, optimizer, 3)
    load(state(model, optimizer), tmp_path)
    assert not optimizer.state
    once = net(1)
    train(once, torch.optim.Adam(once.parameters()), 2)
    train(model, optimizer, 2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), once.parameters(), strict=True))


def test_moments_are_stored_in_another_type_and_come_back_in_their_own(tmp_path: Path) -> None:
    """Method: store moments in two bytes, or one of them; load with and without the same policy, into state and into none."""
    model = net(1)
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, 3)
    save(state(model, optimizer, optimizer_dtype=torch.bfloat16), tmp_path / "both")
    save(state(model, optimizer, optimizer_dtype={"exp_avg": torch.float16}), tmp_path / "one")
    kinds = {name: dtype for name, (dtype, _) in read(tmp_path / "both")[0].items()}
    assert (kinds["optimizer/0.weight/exp_avg"], kinds["optimizer/0.weight/step"]) == ("BF16", "F32")
    assert kinds["model/0.weight"] == "F32"
    kinds = {name: dtype for name, (dtype, _) in read(tmp_path / "one")[0].items()}
    assert (kinds["optimizer/0.weight/exp_avg"], kinds["optimizer/0.weight/exp_avg_sq"]) == ("F16", "F32")
    for name, dtype in {"both": torch.bfloat16, "one": torch.float16}.items():
        for policy in (dtype, None):
            for steps in (0, 1):
                other = net(2)
                fresh = torch.optim.Adam(other.parameters())
                train(other, fresh, steps)
                load(state(other, fresh, optimizer_dtype=policy), tmp_path / name)
                moment = fresh.state[other[0].weight]["exp_avg"]
                assert moment.dtype == torch.float32
                assert torch.equal(moment, optimizer.state[model[0].weight]["exp_avg"].to(dtype).float())


def test_several_optimizers_share_a_model(tmp_path: Path) -> None:
    def made(model: nn.Sequential) -> list[Optimizer]:
        return [
            torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9),
            torch.optim.Adam(model[2].parameters()),
        ]

    model = net(1)
    optimizers = made(model)
    for optimizer in optimizers:
        train(model, optimizer, 2)
    save(state(model, optimizers), tmp_path)
    other = net(2)
    load(state(other, made(other)), tmp_path)
    names = contents(state(model, optimizers))
    assert {"optimizer/0.weight/momentum_buffer", "optimizer/2.weight/exp_avg"} <= names.keys()


class Growing(Optimizer):
    """An optimizer whose own ``state_dict`` has more than parameters and groups."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.calls, self.scale = 0, torch.ones(2, dtype=torch.float64)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.calls += 1
        self.scale *= 1.25
        for group in self.param_groups:
            for parameter in group["params"]:
                moment = self.state[parameter].setdefault("m", torch.zeros(parameter.shape).double())
                moment.mul_(0.9).add_(parameter.grad)
                parameter -= group["lr"] * (moment * self.scale[0] / self.calls).to(parameter.dtype)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "calls": self.calls, "scale": self.scale}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        super().load_state_dict({key: saved[key] for key in ("state", "param_groups")})
        self.calls, self.scale = saved["calls"], saved["scale"].clone()


class Sharp(Optimizer):
    """An optimizer around another, as SAM is: the moments are the inner one's, and in no ``state_dict`` of the outer one."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})
        self.inner = torch.optim.Adam(self.param_groups, lr=0.01)
        self.param_groups = self.inner.param_groups

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["before"] = parameter.clone()
                parameter += 0.05 * parameter.grad
        self.inner.step()


def phases(model: nn.Sequential) -> list[Optimizer]:
    """Two optimizers that share a layer, with rates of their own."""
    first = [*model[0].parameters(), model[2].weight]
    return [torch.optim.Adam(first, lr=0.01), torch.optim.Adam(model.parameters(), lr=0.02, betas=(0.5, 0.9))]


@pytest.mark.parametrize(
    "make",
    [
        phases,
        lambda model: [Growing(model.parameters())],
        lambda model: [Sharp(model.parameters())],
        lambda model: [Preconditioned(model.parameters())],
    ],
)
def test_everything_that_optimizers_know_comes_back(tmp_path: Path, make: Any) -> None:
    """Goal: moments, rates and further state of every optimizer, also where several have one parameter. Method: train on in
    both, by turns, and compare bits."""
    model, other = net(1), net(2)
    ours, theirs = make(model), make(other)
    if make is phases:
        ours[0].param_groups[0]["lr"] = 0.5
    for optimizer in ours:
        train(model, optimizer, 3)
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoint = checkpoints.save(1, state(model, ours)).wait()
        checkpoints.load(checkpoint, state(other, theirs))
    for old, new in zip(ours, theirs, strict=True):
        train(model, old, 2)
        train(other, new, 2)
        assert [group["lr"] for group in old.param_groups] == [group["lr"] for group in new.param_groups]
        for name, ((_, a), (_, b)) in enumerate(zip(old.state.items(), new.state.items(), strict=True)):
            assert a.keys() == b.keys()
            for key, value in a.items():
                assert repr(value) == repr(b[key]), (name, key)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    if make is phases:
        names = checkpoint.manifest.tensors
        assert {"optimizer.0/0.weight/exp_avg", "optimizer.1/0.weight/exp_avg"} <= names.keys()
        # What only one optimizer has keeps the name that it always had.
        assert "optimizer/2.bias/exp_avg" in names
        with pytest.raises(errors.TreeMismatch):
            checkpoints.load(checkpoint, state(other, theirs[1]))


def test_state_of_nobodys_parameter_is_refused() -> None:
    model, other = net(1), net(2)
    foreign = torch.optim.Adam(other.parameters())
    with pytest.raises(
        errors.TreeInvalid, match=r"group 0 has a parameter of shape \(4, 3\) that the model does not have"
    ):
        state(model, foreign).values()
    strange = torch.optim.Adam(model.parameters())
    strange.state["global"] = {"k": 1}
    with pytest.raises(errors.TreeInvalid, match="state of 'global', no parameter"):
        state(model, strange).held()


@pytest.mark.parametrize(
    ("saved", "made"),
    [("adam", "plain"), ("plain", "adam"), ("sgd", "nadam"), ("nadam", "fused"), ("fused", "adam")],
)
def test_state_of_another_kind_of_optimizer_is_refused(saved: str, made: str, tmp_path: Path) -> None:
    model = nn.Linear(3, 3)
    first, second = MAKERS[saved](model.parameters()), MAKERS[made](model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    first.step()
    before = [group["lr"] for group in second.param_groups]
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoint = checkpoints.save(1, state(model, first)).wait()
        with pytest.raises(errors.TreeInvalid, match="another kind of optimizer"):
            checkpoints.resume(state(model, second))
        assert not second.state
        assert [group["lr"] for group in second.param_groups] == before
        checkpoints.load(checkpoint, state(model, second), only="model")


def test_a_setting_that_an_optimizer_has_learned_since_is_no_other_kind(tmp_path: Path) -> None:
    model = nn.Linear(3, 3)
    older, newer = (torch.optim.Adam(model.parameters(), lr=lr) for lr in (0.5, 0.1))
    for group in older.param_groups:
        del group["decoupled_weight_decay"]
    torch.optim.lr_scheduler.LinearLR(older)
    with ps.Checkpoints(tmp_path) as checkpoints:
        with pytest.warns(UserWarning, match="a scheduler sets the learning rate of Adam"):
            checkpoints.save(1, state(model, older)).wait()
        checkpoints.resume(state(model, newer))
    assert newer.param_groups[0]["lr"] == older.param_groups[0]["lr"]


def test_moments_of_another_class_are_loaded_when_that_is_asked_for(tmp_path: Path) -> None:
    model = nn.Linear(3, 3)
    decoupled, plain = torch.optim.AdamW(model.parameters(), lr=0.5), torch.optim.Adam(model.parameters())
    train(model, decoupled, 2)
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state(model, decoupled)).wait()
        with pytest.raises(errors.TreeInvalid, match="AdamW saved it, and this is Adam") as caught:
            checkpoints.resume(state(model, plain))
        assert "skip=('optimizer/param_groups',)" in caught.value.hint
        checkpoints.resume(state(model, plain, skip=("optimizer/param_groups",)), strict=False)
    assert torch.equal(plain.state[model.weight]["exp_avg"], decoupled.state[model.weight]["exp_avg"])
    assert (plain.param_groups[0]["lr"], plain.param_groups[0]["decoupled_weight_decay"]) == (1e-3, False)


class Wrapper(Optimizer):
    """As Accelerate wraps an optimizer: the same groups and state under another class, which never was initialised as one."""

    def __init__(self, inner: Optimizer) -> None:
        self.optimizer = inner

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)

    def step(self, closure: Any = None) -> None:
        self.optimizer.step()


def test_a_wrapper_is_the_optimizer_that_it_wraps(tmp_path: Path) -> None:
    model = nn.Linear(3, 3)
    inner = torch.optim.AdamW(model.parameters())
    tree = state(model, Wrapper(Wrapper(inner)))
    train(model, inner, 2)
    assert tree.unpinned() == ()
    assert tree.optimizer_progress() is not None
    with ps.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, tree).wait()
        checkpoints.resume(state(model, torch.optim.AdamW(model.parameters())))


def test_an_optimizer_that_trains_and_is_not_saved_is_named(tmp_path: Path) -> None:
    """Goal: nobody saves an optimizer that was replaced, or none, without a word. Method: train with one that the state does not have."""
    model = net(1)
    old, new = (torch.optim.AdamW(model.parameters(), lr=lr) for lr in (0.5, 0.1))
    replaced, forgotten, left_out = state(model, old), state(model), state(model, skip=("optimizer",))
    whole = state(model, extra={"optimizer": new}, skip=("optimizer",))
    train(model, old, 1)
    assert replaced.unpinned() == ()
    train(model, new, 1)
    text = "AdamW trains 0.weight and 3 more and is not part of the state, which has {}: make the state"
    assert replaced.unpinned()[0].startswith(text.format("AdamW"))
    assert any(reason.startswith(text.format("no optimizer")) for reason in forgotten.unpinned())
    assert not any("is not part" in reason for reason in left_out.unpinned() + whole.unpinned())
    with ps.Checkpoints(tmp_path) as checkpoints, pytest.warns(UserWarning, match="not part of the state"):
        checkpoints.save(1, replaced).wait()
    # One that is made from now on knows nobody else, and training without moments loses none.
    assert state(model, new).unpinned() == ()
    plain = state(model)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 1)
    assert not any("is not part" in reason for reason in plain.unpinned())


def test_a_lazy_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    def made() -> tuple[nn.Module, Optimizer]:
        model = nn.Sequential(nn.LazyLinear(4))
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = made()
    with ps.Checkpoints(tmp_path) as checkpoints:
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        checkpoints.save(1, state(model, optimizer)).wait()
        with pytest.raises(errors.TreeInvalid, match="no shape yet"):
            checkpoints.resume(state(*made()))
