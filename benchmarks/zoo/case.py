"""What a case of the zoo is, and what its bits are, told without Penstock."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

#: What may come of a case. A resume with other bits and without a word is none of them.
Outcome = Literal["equal", "refused", "unpinned"]


@dataclass
class Program:
    """A training program between two steps."""

    model: nn.Module
    optimizers: list[Optimizer]
    #: Trains one step, given its number.
    train: Callable[[int], None]
    scheduler: Any = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A program, and what is to come of it."""

    name: str
    make: Callable[[], Program]
    expected: Outcome = "equal"
    ranks: int = 1
    #: A package that it needs beside PyTorch.
    needs: str = ""
    #: Where it runs: anywhere, on the processor alone, or on an accelerator alone.
    where: Literal["anywhere", "cpu", "cuda"] = "anywhere"
    #: Steps before the save, and after it.
    steps: tuple[int, int] = (3, 3)


def fingerprint(program: Program) -> str:
    """A hash of every parameter, buffer and moment, of groups, schedules and further state, as PyTorch itself gives them."""
    hasher = hashlib.sha256()
    _feed(hasher, dict(program.model.named_parameters()))
    _feed(hasher, dict(program.model.named_buffers()))
    for optimizer in program.optimizers:
        _feed(hasher, optimizer.state_dict())
    schedulers = program.scheduler if isinstance(program.scheduler, list) else [program.scheduler]
    for part in (*schedulers, *program.extra.values()):
        _feed(hasher, part.state_dict() if hasattr(part, "state_dict") else part)
    return hasher.hexdigest()


def _feed(hasher: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        tensor = getattr(value, "_local_tensor", value).detach()
        if hasattr(tensor, "__tensor_flatten__"):
            for name in tensor.__tensor_flatten__()[0]:
                _feed(hasher, getattr(tensor, name))
            return
        hasher.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
        hasher.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            hasher.update(repr(key).encode())
            _feed(hasher, value[key])
    elif isinstance(value, list | tuple):
        hasher.update(f"[{len(value)}".encode())
        for item in value:
            _feed(hasher, item)
    elif isinstance(value, torch.Generator):
        _feed(hasher, value.get_state())
    elif value is None or isinstance(value, bool | int | float | str):
        hasher.update(repr(value).encode())


def rows(step: int, *shape: int) -> torch.Tensor:
    """The batch of a step: the same numbers on every device."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(1000 + step), device="cpu")
    return values.to(torch.get_default_device())


def tokens(step: int, *shape: int, words: int = 32) -> torch.Tensor:
    """Tokens of a step."""
    values = torch.randint(
        0, words, shape, generator=torch.Generator().manual_seed(1000 + step), device="cpu"
    )
    return values.to(torch.get_default_device())


def ordinary(
    model: nn.Module,
    loss: Callable[[int], torch.Tensor],
    optimizer: Optimizer | None = None,
    scheduler: Any = None,
    extra: dict[str, Any] | None = None,
) -> Program:
    """The loop that everybody writes."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    stepper = optimizer or torch.optim.AdamW(trained, lr=1e-2)

    def train(step: int) -> None:
        stepper.zero_grad()
        loss(step).backward()
        stepper.step()
        if scheduler is not None:
            scheduler.step()

    return Program(model, [stepper], train, scheduler, extra or {})


def perceptron() -> nn.Sequential:
    """A small model."""
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
