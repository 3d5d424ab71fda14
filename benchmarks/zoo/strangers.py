"""Programs as strangers write them: optimizers from papers, and what a loop carries in variables of its own, which no state has."""

import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import prune
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.zoo.case import Case, Program, ordinary, perceptron, rows

#: Counted by a model, as scripts do it.
CALLS = 0


def _loss(model: nn.Module, step: int) -> torch.Tensor:
    loss: torch.Tensor = model(rows(step, 5, 6)).square().mean()
    return loss


def _with(make: Callable[[Any], Optimizer], model: nn.Module | None = None) -> Program:
    trained = model or perceptron()
    return ordinary(trained, lambda step: _loss(trained, step), make(trained.parameters()))


class ScheduleFree(Optimizer):
    """Training without a schedule: counts and sums in the group, an iterate in the state, and two modes of the weights."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01, "k": 0, "train_mode": True, "weight_sum": 0.0})

    @torch.no_grad()
    def _move(self, weight: float, *, to_training: bool) -> None:
        for group in self.param_groups:
            if group["train_mode"] is not to_training:
                for parameter in group["params"]:
                    if "z" in self.state[parameter]:
                        parameter.lerp_(self.state[parameter]["z"], weight=weight)
                group["train_mode"] = to_training

    def train(self) -> None:
        """The weights that gradients are taken at."""
        self._move(1 - 0.9, to_training=True)

    def eval(self) -> None:
        """The weights that are evaluated, and saved."""
        self._move(1 - 1 / 0.9, to_training=False)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One step."""
        for group in self.param_groups:
            group["k"] += 1
            group["weight_sum"] += group["lr"] ** 2
            share = group["lr"] ** 2 / group["weight_sum"]
            for parameter in group["params"]:
                z = self.state[parameter].setdefault("z", parameter.clone())
                parameter.lerp_(z, weight=share)
                parameter.add_(parameter.grad, alpha=group["lr"] * (0.9 * (1 - share) - 1))
                z.sub_(parameter.grad, alpha=group["lr"])


class Preconditioned(Optimizer):
    """SOAP and Shampoo: lists of matrices, empty lists and None in the state of a parameter."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01, "frequency": 2})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One step; every second one with new bases."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self._move(parameter, self.state[parameter], group)

    def _move(self, parameter: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        gradient = parameter.grad
        assert gradient is not None
        if not state:
            sizes = parameter.shape if parameter.ndim > 1 else ()
            state |= {"step": 0, "GG": [torch.zeros(size, size) for size in sizes] or [[]], "Q": None}
        for at, matrix in enumerate(state["GG"]):
            if len(matrix):
                flat = gradient.movedim(at, 0).flatten(1)
                matrix.lerp_(flat @ flat.T, 0.1)
        if state["step"] % group["frequency"] == 0:
            state["Q"] = [
                torch.linalg.qr(matrix + torch.eye(len(matrix)))[0] if len(matrix) else []
                for matrix in state["GG"]
            ]
        for basis in state["Q"]:
            if len(basis):
                gradient = torch.tensordot(gradient, basis @ basis.T, dims=[[0], [1]])
        state["step"] += 1
        parameter.add_(gradient.reshape(parameter.shape), alpha=-group["lr"])


class Adapting(Optimizer):
    """Prodigy: the first step puts tensors into the group."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1.0, "d": 1e-2})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One step."""
        for group in self.param_groups:
            group.setdefault("numerator", torch.tensor(1.0))
            group.setdefault("sums", torch.zeros(1, dtype=torch.float64))
            for parameter in group["params"]:
                group["numerator"].add_(parameter.grad.abs().sum())
                group["sums"].add_(parameter.grad.sum().double())
            group["d"] = max(group["d"], 1e-3 * group["numerator"].item() + 1e-6 * group["sums"].abs().item())
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["d"] * group["lr"])


class Master(Optimizer):
    """Weights of full precision in the state, of a model in bfloat16."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One step of the masters."""
        for group in self.param_groups:
            for parameter in group["params"]:
                master = self.state[parameter].setdefault("master", parameter.detach().float())
                master.add_(parameter.grad.float(), alpha=-group["lr"])
                parameter.copy_(master)


class Counting(nn.Module):
    """A module that counts in its class, or in a global."""

    calls = 0

    def __init__(self, *, in_class: bool) -> None:
        super().__init__()
        self.inner, self.in_class = nn.Linear(6, 4), in_class

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        global CALLS
        if self.in_class:
            Counting.calls += 1
            return self.inner(inputs) * Counting.calls
        CALLS += 1
        return self.inner(inputs) * CALLS


class Shadow:
    """An average as many repositories have it: a dict of tensors in an object."""

    def __init__(self, model: nn.Module) -> None:
        self.tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def follow(self, model: nn.Module) -> None:
        """Move towards the model, and pull the model back a little."""
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                self.tensors[name].lerp_(tensor, 0.1)
                tensor.lerp_(self.tensors[name], 0.1)


def _evaluating() -> Program:
    model = perceptron()
    optimizer = ScheduleFree(model.parameters())
    plain = ordinary(model, lambda step: _loss(model, step), optimizer)

    def train(step: int) -> None:
        optimizer.train()
        plain.train(step)
        optimizer.eval()

    return Program(model, [optimizer], train)


def _in_backward() -> Program:
    model = perceptron()
    optimizers = {
        parameter: torch.optim.Adam([parameter], lr=0.01, foreach=False) for parameter in model.parameters()
    }

    def hook(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    return Program(model, list(optimizers.values()), lambda step: _loss(model, step).backward())


def _merging() -> Program:
    """ReLoRA: the adapter is merged into the frozen weight, drawn anew, and its moments are zeroed."""
    model = nn.Linear(6, 6)
    model.requires_grad_(False)
    model.down, model.up = nn.Parameter(torch.randn(2, 6)), nn.Parameter(torch.zeros(6, 2))
    optimizer = torch.optim.AdamW([model.down, model.up], lr=0.05)

    def train(step: int) -> None:
        if step % 2:
            with torch.no_grad():
                model.weight += model.up @ model.down
                model.down.normal_()
                model.up.zero_()
            for parameter in (model.down, model.up):
                optimizer.state[parameter]["exp_avg"].zero_()
        optimizer.zero_grad()
        inputs = rows(step, 5, 6)
        (model(inputs) + inputs @ model.down.T @ model.up.T - 1).square().mean().backward()
        optimizer.step()

    return Program(model, [optimizer], train)


def _pruned(*, again: bool) -> Program:
    model = perceptron()
    prune.l1_unstructured(model[0], "weight", 0.3)
    plain = _with(lambda parameters: torch.optim.AdamW(parameters, lr=0.05), model)

    def train(step: int) -> None:
        if again:
            prune.l1_unstructured(model[0], "weight", amount=2)
        plain.train(step)

    return Program(model, plain.optimizers, train)


def _late_layers() -> Program:
    model = perceptron()
    optimizer = torch.optim.AdamW(model[0].parameters(), lr=0.01)
    plain = ordinary(model, lambda step: _loss(model, step), optimizer)

    def train(step: int) -> None:
        if step == 2:
            optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.1})
        plain.train(step)

    return Program(model, [optimizer], train)


def _hidden_state(*, held: bool) -> Program:
    """An RNN whose hidden state goes from step to step: ``word_language_model`` of PyTorch's examples."""
    model = nn.LSTM(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    extra: dict[str, Any] = {"hidden": (torch.zeros(1, 2, 5), torch.zeros(1, 2, 5))}
    hidden = extra["hidden"]

    def train(step: int) -> None:
        nonlocal hidden
        before = tuple(part.detach() for part in (extra["hidden"] if held else hidden))
        optimizer.zero_grad()
        output, after = model(rows(step, 7, 2, 6), before)
        output.square().mean().backward()
        optimizer.step()
        hidden = after
        if held:
            extra["hidden"] = after

    return Program(model, [optimizer], train, None, extra if held else {})


def _replayed(*, held: bool) -> Program:
    """A buffer of what was seen, from which batches are drawn."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seen: deque[tuple[torch.Tensor, int]] = deque(maxlen=4)
    draw = np.random.RandomState(3)

    def train(step: int) -> None:
        seen.append((rows(step, 5, 6), step))
        optimizer.zero_grad()
        model(seen[draw.randint(len(seen))][0]).square().mean().backward()
        optimizer.step()

    return Program(model, [optimizer], train, None, {"seen": seen, "draw": draw} if held else {})


def _fed(make: Callable[[], Any]) -> Program:
    """A loop that draws from something that it made before."""
    model = perceptron()
    source = make()
    return ordinary(
        model, lambda step: (model(rows(step, 5, 6) + _drawn(source))).square().mean(), _sgd(model)
    )


def _sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def _plain_sgd(parameters: Any) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def _drawn(source: Any) -> Any:
    if isinstance(source, torch.Generator):
        return torch.randn(6, generator=source, device=source.device).to(torch.get_default_device())
    if isinstance(source, random.Random | np.random.Generator):
        return float(source.random())
    return next(source)[0].mean()


def _batches() -> Any:
    return itertools.cycle(DataLoader(TensorDataset(rows(7, 40, 6)), batch_size=4))


def _followed() -> Program:
    """A teacher that the loop moves after its student, and the state does not have."""
    model, teacher = perceptron(), perceptron().requires_grad_(False)
    optimizer = _sgd(model)

    def train(step: int) -> None:
        optimizer.zero_grad()
        (model(rows(step, 5, 6)) - teacher(rows(step, 5, 6))).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)

    return Program(model, [optimizer], train)


def _shadowed() -> Program:
    model = perceptron()
    shadow = Shadow(model)
    plain = ordinary(model, lambda step: _loss(model, step), _sgd(model))

    def train(step: int) -> None:
        plain.train(step)
        shadow.follow(model)

    return Program(model, plain.optimizers, train)


def _clipped_by_history() -> Program:
    """AutoClip: the norm to clip to is a percentile of all norms so far."""
    model = perceptron()
    optimizer = _sgd(model)
    norms: list[float] = []

    def train(step: int) -> None:
        optimizer.zero_grad()
        _loss(model, step).backward()
        norms.append(nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()]).item())
        nn.utils.clip_grad_norm_(model.parameters(), float(np.percentile(norms, 10)))
        optimizer.step()

    return Program(model, [optimizer], train)


def _hooked(*, on_tensor: bool) -> Program:
    """A hook that keeps something."""
    model = perceptron()
    kept: dict[str, Any] = {"calls": 0, "mean": torch.zeros(8, 6)}

    def forward(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        kept["calls"] += 1
        return output * kept["calls"]

    def gradient(value: torch.Tensor) -> torch.Tensor:
        kept["mean"].lerp_(value, 0.1)
        return value - kept["mean"]

    if on_tensor:
        model[0].weight.register_hook(gradient)
    else:
        model[0].register_forward_hook(forward)
    return ordinary(model, lambda step: _loss(model, step), _sgd(model))


def _forgotten_scaler() -> Program:
    """A scaler of gradients that the state does not have. Its factors change what bfloat16 rounds; on a device it cannot, and the products are
    of float16.
    """
    device = torch.get_default_device().type
    kind = torch.bfloat16 if device == "cpu" else torch.float16
    model = perceptron()
    model = model.to(kind) if device == "cpu" else model
    optimizer = _sgd(model)
    scaler = torch.amp.GradScaler(device, init_scale=3.0, growth_factor=1.7, growth_interval=1)

    def train(step: int) -> None:
        optimizer.zero_grad()
        with torch.autocast(device, kind, enabled=device != "cpu"):
            loss = model(rows(step, 5, 6).to(kind)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return Program(model, [optimizer], train)


def _master() -> Program:
    model = perceptron().bfloat16()
    return ordinary(
        model, lambda step: model(rows(step, 5, 6).bfloat16()).square().mean(), Master(model.parameters())
    )


CASES = [
    Case("schedule-free", lambda: _with(ScheduleFree)),
    Case("schedule-free, evaluated between steps", _evaluating),
    Case("SOAP: lists and None in the state", lambda: _with(Preconditioned), steps=(4, 5)),
    Case("Prodigy: tensors in groups", lambda: _with(Adapting)),
    Case("masters in the state, a model in bfloat16", _master),
    Case("optimizers that step in backward", _in_backward),
    Case("ReLoRA", _merging),
    Case("pruned before training", lambda: _pruned(again=False)),
    Case("pruned on the way", lambda: _pruned(again=True), "unpinned"),
    Case("layers that join the optimizer on the way", _late_layers, "refused"),
    Case("a hidden state in extra", lambda: _hidden_state(held=True)),
    Case("a hidden state in a variable", lambda: _hidden_state(held=False), "unpinned"),
    Case("a replay buffer in extra", lambda: _replayed(held=True)),
    Case("a replay buffer in a variable", lambda: _replayed(held=False), "unpinned"),
    Case("an iterator in a variable", lambda: _fed(_batches), "unpinned"),
    Case(
        "a generator of PyTorch in a variable",
        lambda: _fed(lambda: torch.Generator().manual_seed(3)),
        "unpinned",
    ),
    Case("a generator of NumPy in a variable", lambda: _fed(lambda: np.random.default_rng(3)), "unpinned"),
    Case("a generator of Python in a variable", lambda: _fed(lambda: random.Random(3)), "unpinned"),
    Case("a teacher in a variable", _followed, "unpinned"),
    Case("an average in an object", _shadowed, "unpinned"),
    Case("a history of norms", _clipped_by_history, "unpinned"),
    Case("a forward hook that counts", lambda: _hooked(on_tensor=False), "unpinned"),
    Case("a hook of a gradient that averages", lambda: _hooked(on_tensor=True), "unpinned"),
    Case("a count in a class", lambda: _with(_plain_sgd, Counting(in_class=True)), "unpinned"),
    Case("a count in a global", lambda: _with(_plain_sgd, Counting(in_class=False)), "unpinned"),
    Case("a scaler that the state does not have", _forgotten_scaler, "unpinned"),
]
