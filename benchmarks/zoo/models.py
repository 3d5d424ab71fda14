"""Models of the zoo: layers, normalisations, parametrizations, and what modules keep beside parameters."""

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations

from benchmarks.zoo.case import Case, Program, ordinary, perceptron, rows, tokens


def _of(build: Callable[[], nn.Module], *shape: int, dtype: torch.dtype = torch.float32) -> Program:
    model = build()

    def loss(step: int) -> torch.Tensor:
        output = model(rows(step, *shape).to(dtype))
        output = output[0] if isinstance(output, tuple) else output
        return output.abs().square().mean()

    return ordinary(model, loss)


class Residual(nn.Module):
    """A block as timm's ResNets have it."""

    def __init__(self, width: int, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width, momentum=momentum),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width, momentum=momentum),
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.relu(inputs + self.body(inputs))


class Squeezing(nn.Module):
    """Depthwise, squeeze and excite, drop path: MobileNet and EfficientNet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.BatchNorm2d(width)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1), nn.Sigmoid())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.silu(self.norm(self.depth(inputs)))
        kept = (torch.rand(inputs.shape[0], 1, 1, 1) > 0.2).float()
        return inputs + hidden * self.gate(hidden) * kept


class Tied(nn.Module):
    """Embedding and head are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 8)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.embed(inputs)))


class Experts(nn.Module):
    """Of its experts a step uses one, so the others have no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(8))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.experts[int(inputs.sum().abs() * 100) % 8](inputs)


class LowRank(nn.Module):
    """A frozen layer with a small trained one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 6).requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(2, 6)), nn.Parameter(torch.zeros(6, 2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.base(inputs) + inputs @ self.down.T @ self.up.T


def _dropping() -> nn.Module:
    return nn.LSTM(6, 5, num_layers=2, dropout=0.1)


class Keeping(nn.Module):
    """Something that forward changes, kept in one of many ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.way = way
        if way in ("buffer", "passing"):
            self.register_buffer("scale", torch.ones(()), persistent=way == "buffer")
        elif way == "tensor":
            self.scale = torch.ones(())
        elif way == "generator":
            self.generator = torch.Generator().manual_seed(3)
        elif way == "python":
            self.generator = random.Random(3)
        elif way == "list":
            self.seen: list[float] = []
        else:
            self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.inner(inputs) * self._factor()

    def _factor(self) -> Any:
        if self.way in ("buffer", "passing", "tensor"):
            self.scale.mul_(1.125)
            return self.scale.clone()
        if self.way == "generator":
            device = torch.get_default_device()
            return torch.rand((), generator=self.generator, device=self.generator.device).to(device)
        if self.way == "python":
            return self.generator.random()
        if self.way == "list":
            self.seen.append(1.0)
            return len(self.seen)
        self.calls += 1
        return self.calls


class Telling(Keeping):
    """One that says what counts."""

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


class Odd(nn.Module):
    """Names, shapes and types that are rarely seen."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name = nn.ParameterDict({"a/b": torch.ones(3), "~": torch.ones(2), "0": torch.ones(1)})
        self.listed = nn.ParameterList([torch.ones(()), torch.ones(0, 4)])
        self.param_groups = nn.Parameter(torch.ones(2))
        self.register_buffer("small", torch.ones(3).to(torch.float8_e4m3fn))
        self.register_buffer("scales", torch.ones(3).to(torch.float8_e8m0fnu))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("nothing", None)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        total = sum(parameter.sum() for parameter in self.parameters())
        self.flags.logical_not_()
        return inputs * total


def _norms(*norms: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *norms, nn.Flatten(), nn.LazyLinear(2))


def _warmed(model: nn.Module, *shape: int) -> nn.Module:
    model(torch.zeros(*shape))
    return model


def _tied_text() -> Program:
    model = Tied()
    return ordinary(
        model, lambda step: nn.functional.cross_entropy(model(tokens(step, 16)), tokens(step + 1, 16))
    )


def _half() -> nn.Module:
    model = perceptron()
    model[2].to(torch.bfloat16)
    return nn.Sequential(model[0], model[1], _Cast(torch.bfloat16), model[2])


class _Cast(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.to(self.dtype)


class _Complex(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.complex64) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(6, dtype=dtype))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(inputs) * self.turn


def _parametrized(with_: Callable[..., nn.Module]) -> nn.Module:
    return nn.Sequential(with_(nn.Linear(6, 8)), nn.Tanh(), with_(nn.Linear(8, 4)))


def _frozen() -> nn.Module:
    model = perceptron()
    model[0].requires_grad_(False)
    return model


def _last(model: nn.Module) -> nn.Module:
    return model.to(memory_format=torch.channels_last)


_PICTURE = (4, 3, 8, 8)
CASES = [
    Case("perceptron", lambda: _of(perceptron, 5, 6)),
    Case("perceptron in bfloat16", lambda: _of(lambda: perceptron().bfloat16(), 5, 6, dtype=torch.bfloat16)),
    Case("perceptron in float64", lambda: _of(lambda: perceptron().double(), 5, 6, dtype=torch.float64)),
    Case("two types in one model", lambda: _of(_half, 5, 6)),
    Case("complex parameters", lambda: _of(_Complex, 5, 6)),
    Case("complex128 parameters", lambda: _of(lambda: _Complex(torch.complex128), 5, 6), "refused"),
    Case(
        "residual network with BatchNorm",
        lambda: _of(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), Residual(4), Residual(4)), *_PICTURE),
    ),
    Case("BatchNorm without momentum", lambda: _of(lambda: Residual(3, momentum=None), *_PICTURE)),
    Case("squeeze and excite with drop path", lambda: _of(lambda: Squeezing(3), *_PICTURE)),
    Case(
        "InstanceNorm with statistics, GroupNorm",
        lambda: _of(
            lambda: _warmed(
                _norms(nn.InstanceNorm2d(4, track_running_stats=True), nn.GroupNorm(2, 4)), *_PICTURE
            ),
            *_PICTURE,
        ),
    ),
    Case("channels last", lambda: _of(lambda: _last(Residual(3)), *_PICTURE)),
    Case(
        "dropout of many kinds",
        lambda: _of(lambda: nn.Sequential(perceptron(), nn.Dropout(0.3), nn.AlphaDropout(0.2)), 5, 6),
    ),
    Case("tied embedding", _tied_text),
    Case("weight norm", lambda: _of(lambda: _parametrized(parametrizations.weight_norm), 5, 6)),
    Case("spectral norm", lambda: _of(lambda: _parametrized(parametrizations.spectral_norm), 5, 6)),
    Case("orthogonal", lambda: _of(lambda: _parametrized(parametrizations.orthogonal), 5, 6)),
    Case("spectral norm, the old one", lambda: _of(lambda: _parametrized(nn.utils.spectral_norm), 5, 6)),
    Case("LSTM", lambda: _of(lambda: nn.LSTM(6, 5, num_layers=2), 7, 2, 6)),
    Case("LSTM with dropout", lambda: _of(_dropping, 7, 2, 6), where="cpu"),
    Case("LSTM with dropout of cuDNN", lambda: _of(_dropping, 7, 2, 6), expected="unpinned", where="cuda"),
    Case("GRU, both ways", lambda: _of(lambda: nn.GRU(6, 5, bidirectional=True), 7, 2, 6)),
    Case(
        "transformer encoder",
        lambda: _of(lambda: nn.TransformerEncoderLayer(8, 2, dim_feedforward=16), 5, 2, 8),
    ),
    Case("experts without gradient", lambda: _of(Experts, 5, 6), steps=(5, 5)),
    Case("low-rank adapters", lambda: _of(LowRank, 5, 6)),
    Case("frozen layers", lambda: _of(_frozen, 5, 6)),
    Case("lazy layers", lambda: _of(lambda: _warmed(nn.LazyLinear(4), 5, 6), 5, 6)),
    Case("odd names, shapes and types", lambda: _of(Odd, 2, 2)),
    Case("a buffer that forward changes", lambda: _of(lambda: Keeping("buffer"), 5, 6)),
    Case("a state of its own making", lambda: _of(lambda: Telling("calls"), 5, 6)),
    Case("a buffer that is not persistent", lambda: _of(lambda: Keeping("passing"), 5, 6), "unpinned"),
    Case("a tensor as an attribute", lambda: _of(lambda: Keeping("tensor"), 5, 6), "unpinned"),
    Case("a count as an attribute", lambda: _of(lambda: Keeping("calls"), 5, 6), "unpinned"),
    Case("a list as an attribute", lambda: _of(lambda: Keeping("list"), 5, 6), "unpinned"),
    Case("a generator as an attribute", lambda: _of(lambda: Keeping("generator"), 5, 6), "unpinned"),
    Case("a generator of Python as an attribute", lambda: _of(lambda: Keeping("python"), 5, 6), "unpinned"),
]
