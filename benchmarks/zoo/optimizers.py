"""Optimizers of the zoo: all of PyTorch's, several at once, and those that people write around them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from benchmarks.zoo.case import Case, Program, ordinary, perceptron, rows

_Make = Callable[[Any], Optimizer]


class Lookahead(Optimizer):
    """Slow weights every second step; its count is a plain attribute, which no ``state_dict`` has."""

    def __init__(self, parameters: Any, *, tells: bool = False) -> None:
        super().__init__(parameters, {"lr": 0.05})
        self.calls = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """A step, and every second time one of the slow weights."""
        self.calls += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                slow = self.state[parameter].setdefault("slow", parameter.clone())
                parameter -= group["lr"] * parameter.grad
                if self.calls % 2 == 0:
                    slow.lerp_(parameter, 0.5)
                    parameter.copy_(slow)


class TellingLookahead(Lookahead):
    """The same with a state of its own."""

    def state_dict(self) -> dict[str, Any]:
        """With the count."""
        return {**super().state_dict(), "calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """With the count."""
        super().load_state_dict({key: state[key] for key in ("state", "param_groups")})
        self.calls = state["calls"]


class Sharp(Optimizer):
    """SAM: climbs, looks again, and steps with an optimizer inside."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01, "rho": 0.05})
        self.base = torch.optim.AdamW(self.param_groups, lr=0.01)
        self.param_groups = self.base.param_groups

    def step(self, closure: Any = None) -> None:
        """Two backward passes and one step."""
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter]["before"] = parameter.clone()
                    parameter += 0.05 * parameter.grad
        with torch.enable_grad():
            self.base.zero_grad()
            closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.copy_(self.state[parameter]["before"])
        self.base.step()


def _with(make: _Make) -> Program:
    model = perceptron()
    return ordinary(model, lambda step: model(rows(step, 5, 6)).square().mean(), make(model.parameters()))


def _closing(make: _Make, *, steps_first: bool = False) -> Program:
    """A loop that gives the optimizer a closure, as LBFGS and SAM want it."""
    model = perceptron()
    optimizer = make(model.parameters())

    def train(step: int) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(rows(step, 5, 6)).square().mean()
            loss.backward()
            return loss

        if steps_first:
            closure()
        optimizer.step(closure)

    inner = [member for member in vars(optimizer).values() if isinstance(member, Optimizer)]
    return Program(model, [optimizer, *inner], train)


def _adversaries(*, shared: bool) -> Program:
    """Two networks against each other; their optimizers may share a layer."""
    model = nn.ModuleDict({"maker": nn.Linear(4, 6), "judge": perceptron(), "common": nn.Linear(6, 6)})
    common = list(model["common"].parameters()) if shared else []
    making = torch.optim.Adam([*model["maker"].parameters(), *common], lr=0.01, betas=(0.5, 0.9))
    judging = torch.optim.Adam([*model["judge"].parameters(), *common], lr=0.03)

    def train(step: int) -> None:
        judging.zero_grad()
        output = model["common"](model["maker"](rows(step, 5, 4)).detach())
        model["judge"](output).square().mean().backward()
        judging.step()
        making.zero_grad()
        output = model["common"](model["maker"](rows(step, 5, 4)))
        (-model["judge"](output).mean()).backward()
        making.step()

    return Program(model, [making, judging], train)


def _in_phases() -> Program:
    """One optimizer first, another afterwards, over the same parameters."""
    model = perceptron()
    first, second = (
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        torch.optim.Adam(model.parameters()),
    )

    def train(step: int) -> None:
        optimizer = first if step % 4 < 2 else second
        optimizer.zero_grad()
        model(rows(step, 5, 6)).square().mean().backward()
        optimizer.step()

    return Program(model, [first, second], train)


def _sparse() -> Program:
    model = nn.EmbeddingBag(20, 4, sparse=True)
    index = torch.arange(8).reshape(2, 4)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.01)
    return ordinary(model, lambda step: model((index * (step + 1)) % 20).square().mean(), optimizer)


def _muon() -> Program:
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Tanh(), nn.Linear(8, 4, bias=False))
    optimizer = torch.optim.Muon(model.parameters(), lr=0.01)
    return ordinary(model, lambda step: model(rows(step, 5, 6)).square().mean(), optimizer)


def _clipped() -> Program:
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01), foreach=False)

    def train(step: int) -> None:
        optimizer.zero_grad(set_to_none=False)
        model(rows(step, 5, 6)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    return Program(model, [optimizer], train)


def _groups() -> Program:
    model = perceptron()
    groups = [
        {"params": model[0].parameters(), "lr": 0.1, "weight_decay": 0.0},
        {"params": model[2].parameters(), "lr": 0.01, "betas": (0.5, 0.6), "maximize": True},
    ]
    optimizer = torch.optim.AdamW(groups)
    return ordinary(model, lambda step: model(rows(step, 5, 6)).square().mean(), optimizer)


_OPTIM = torch.optim
_PLAIN: dict[str, _Make] = {
    "ASGD": lambda parameters: _OPTIM.ASGD(parameters, lr=0.01),
    "Adadelta": lambda parameters: _OPTIM.Adadelta(parameters),
    "Adafactor": lambda parameters: _OPTIM.Adafactor(parameters, lr=0.01),
    "Adagrad": lambda parameters: _OPTIM.Adagrad(parameters, lr=0.01),
    "Adam, amsgrad": lambda parameters: _OPTIM.Adam(parameters, lr=0.01, amsgrad=True),
    "AdamW, fused": lambda parameters: _OPTIM.AdamW(parameters, lr=0.01, fused=True),
    "AdamW, foreach": lambda parameters: _OPTIM.AdamW(parameters, lr=0.01, foreach=True),
    "Adamax": lambda parameters: _OPTIM.Adamax(parameters, lr=0.01),
    "NAdam": lambda parameters: _OPTIM.NAdam(parameters, lr=0.01, decoupled_weight_decay=True),
    "RAdam": lambda parameters: _OPTIM.RAdam(parameters, lr=0.01),
    "RMSprop, centred": lambda parameters: _OPTIM.RMSprop(parameters, lr=0.01, centered=True, momentum=0.9),
    "Rprop": lambda parameters: _OPTIM.Rprop(parameters, lr=0.01),
    "SGD": lambda parameters: _OPTIM.SGD(parameters, lr=0.01),
    "SGD, Nesterov": lambda parameters: _OPTIM.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True),
    "an optimizer with a state_dict of its own": TellingLookahead,
}


def _plain(name: str) -> Callable[[], Program]:
    return lambda: _with(_PLAIN[name])


CASES = [
    *(Case(name, _plain(name)) for name in _PLAIN),
    Case("a count in an optimizer's attribute", lambda: _with(Lookahead), "unpinned"),
    Case("LBFGS", lambda: _closing(lambda parameters: _OPTIM.LBFGS(parameters, lr=0.1, max_iter=3))),
    Case(
        "LBFGS, Wolfe",
        lambda: _closing(
            lambda parameters: _OPTIM.LBFGS(parameters, line_search_fn="strong_wolfe", max_iter=3)
        ),
    ),
    Case("SAM", lambda: _closing(Sharp, steps_first=True)),
    Case("SparseAdam", _sparse),
    Case("Muon", _muon),
    Case("clipping, a rate that is a tensor", _clipped),
    Case("groups with settings of their own", _groups),
    Case("a GAN", lambda: _adversaries(shared=False)),
    Case("a GAN with a common layer", lambda: _adversaries(shared=True)),
    Case("two optimizers in phases", _in_phases, steps=(3, 5)),
]
