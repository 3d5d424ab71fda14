"""What people put around models and optimizers: compilers, averages, scalers, schedules, accumulation."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

from benchmarks.zoo.case import Case, Program, ordinary, perceptron, rows

_Schedule = Callable[[Any], Any]


def _scheduled(make: _Schedule, *, metric: bool = False) -> Program:
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = make(optimizer)

    def train(step: int) -> None:
        optimizer.zero_grad()
        loss = model(rows(step, 5, 6)).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step(*([1.0 + step] if metric else []))

    return Program(model, [optimizer], train, scheduler)


def _two_schedules() -> Program:
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    several = [schedules.StepLR(optimizer, 2), schedules.ExponentialLR(optimizer, 0.9)]

    def train(step: int) -> None:
        optimizer.zero_grad()
        model(rows(step, 5, 6)).square().mean().backward()
        optimizer.step()
        for schedule in several:
            schedule.step()

    return Program(model, [optimizer], train, several)


def _averaged(*, ema: bool) -> Program:
    """Weights that follow the model: EMA at every step, or SWA with its schedule and statistics."""
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9) if ema else None, use_buffers=ema)
    scheduler = None if ema else SWALR(optimizer, swa_lr=0.05, anneal_epochs=3)

    def train(step: int) -> None:
        optimizer.zero_grad()
        model(rows(step, 5, 6)).square().mean().backward()
        optimizer.step()
        average.update_parameters(model)
        if scheduler is not None:
            scheduler.step()
            update_bn([rows(step, 5, 6)], average)

    return Program(model, [optimizer], train, scheduler, {"average": average})


def _hand_made_average() -> Program:
    """A dict of tensors that the loop updates, as nanoGPT's forks do it, and a history beside it."""
    model = perceptron()
    shadow = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    history: dict[str, Any] = {"losses": [], "best": float("inf")}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(step: int) -> None:
        optimizer.zero_grad()
        loss = model(rows(step, 5, 6)).square().mean()
        loss.backward()
        optimizer.step()
        for name, tensor in model.named_parameters():
            shadow[name].lerp_(tensor.detach(), 0.1)
        history["losses"].append(loss.item())
        history["best"] = min(history["best"], loss.item())

    return Program(model, [optimizer], train, None, {"shadow": shadow, "history": history})


def _scaled(*, overflow: bool) -> Program:
    """A gradient scaler; a step whose gradients overflow is left out by it."""
    device = torch.get_default_device().type
    lower = torch.float16 if device == "cuda" else torch.bfloat16
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**100 if overflow else 2.0**16, growth_interval=2)

    def train(step: int) -> None:
        optimizer.zero_grad()
        with torch.autocast(device, lower):
            loss = model(rows(step, 5, 6)).float().square().mean() * (1e30 if overflow else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return Program(model, [optimizer], train, None, {"scaler": scaler})


def _accumulating(every: int, *, to_none: bool = True) -> Program:
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(step: int) -> None:
        (model(rows(step, 5, 6)).square().mean() / every).backward()
        if step % every == every - 1:
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)

    return Program(model, [optimizer], train)


def _around(wrap: Callable[[nn.Module], nn.Module]) -> Program:
    model = wrap(perceptron())
    return ordinary(model, lambda step: model(rows(step, 5, 6)).square().mean())


def _with_generators() -> Program:
    """Noise from the global generators and from one of the program's own."""
    model = perceptron()
    own = torch.Generator(torch.get_default_device()).manual_seed(5)
    return ordinary(
        model,
        lambda step: (
            (model(rows(step, 5, 6) + torch.randn(6)) + torch.randn(4, generator=own)).square().mean()
        ),
        extra={"noise": own},
    )


def _late_group() -> Program:
    """A layer that is unfrozen, and joins the optimizer, before training begins again."""
    model = perceptron()
    optimizer = torch.optim.AdamW(model[0].parameters(), lr=0.01)
    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.1})
    return ordinary(model, lambda step: model(rows(step, 5, 6)).square().mean(), optimizer)


def _forgotten_schedule() -> Program:
    """A scheduler that the program has and its state does not."""
    program = _scheduled(lambda optimizer: schedules.StepLR(optimizer, 2))
    return Program(program.model, program.optimizers, program.train)


def _unfrozen_on_the_way() -> Program:
    model = perceptron()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(step: int) -> None:
        if step == 2:
            model[0].requires_grad_(True)
        optimizer.zero_grad()
        model(rows(step, 5, 6)).square().mean().backward()
        optimizer.step()

    return Program(model, [optimizer], train)


def _dropping_more() -> Program:
    """The chance of a dropout that grows while it is trained."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.Linear(8, 4))
    plain = ordinary(model, lambda step: model(rows(step, 5, 6)).square().mean())

    def train(step: int) -> None:
        if step == 2:
            model[1].p = 0.5
        plain.train(step)

    return Program(model, plain.optimizers, train)


def _lambda(optimizer: Any) -> Any:
    return schedules.LambdaLR(optimizer, lambda step: 0.9**step)


_SCHEDULES: dict[str, _Schedule] = {
    "StepLR": lambda optimizer: schedules.StepLR(optimizer, 2),
    "MultiStepLR": lambda optimizer: schedules.MultiStepLR(optimizer, [2, 4]),
    "LambdaLR": _lambda,
    "CosineAnnealingLR": lambda optimizer: schedules.CosineAnnealingLR(optimizer, 5),
    "CosineAnnealingWarmRestarts": lambda optimizer: schedules.CosineAnnealingWarmRestarts(optimizer, 2),
    "OneCycleLR": lambda optimizer: schedules.OneCycleLR(optimizer, max_lr=0.5, total_steps=10),
    "CyclicLR": lambda optimizer: schedules.CyclicLR(optimizer, 0.01, 0.1, step_size_up=2),
    "PolynomialLR": lambda optimizer: schedules.PolynomialLR(optimizer, 8, power=2.0),
    "SequentialLR": lambda optimizer: schedules.SequentialLR(
        optimizer,
        [schedules.LinearLR(optimizer, 0.1, total_iters=2), schedules.CosineAnnealingLR(optimizer, 6)],
        [2],
    ),
    "ChainedScheduler": lambda optimizer: schedules.ChainedScheduler(
        [schedules.ConstantLR(optimizer, 0.5, 2), schedules.ExponentialLR(optimizer, 0.9)]
    ),
}


def _schedule(name: str) -> Callable[[], Program]:
    return lambda: _scheduled(_SCHEDULES[name])


CASES = [
    *(Case(name, _schedule(name)) for name in _SCHEDULES),
    Case(
        "ReduceLROnPlateau",
        lambda: _scheduled(lambda optimizer: schedules.ReduceLROnPlateau(optimizer, patience=1), metric=True),
        steps=(4, 4),
    ),
    Case("two schedules", _two_schedules),
    Case("EMA", lambda: _averaged(ema=True)),
    Case("SWA", lambda: _averaged(ema=False)),
    Case("an average made by hand, and a history", _hand_made_average),
    Case("GradScaler under autocast", lambda: _scaled(overflow=False)),
    Case("GradScaler that leaves steps out", lambda: _scaled(overflow=True)),
    Case("accumulation over four steps", lambda: _accumulating(4), steps=(6, 4)),
    Case("accumulation, zeroed in place", lambda: _accumulating(3, to_none=False), steps=(3, 5)),
    Case("compiled", lambda: _around(lambda model: torch.compile(model, backend="eager"))),
    Case("activation checkpoints", lambda: _around(lambda model: nn.Sequential(checkpoint_wrapper(model)))),
    Case("DataParallel", lambda: _around(nn.DataParallel)),
    Case("generators of many kinds", _with_generators),
    Case("a group that joined later", _late_group),
    Case("a schedule that the state does not have", _forgotten_schedule, "unpinned"),
    Case("a layer that is unfrozen on the way", _unfrozen_on_the_way, "unpinned"),
    Case("a dropout that grows", _dropping_more, "unpinned"),
]
