"""Shapes of public training scripts: nanoGPT's loop, several models by ``torch.func``, meta learning, evolution, codebooks; and what such programs keep
in objects of libraries.
"""

import copy
import math
import queue
import threading
from collections import UserDict
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.zoo.case import Case, Program, ordinary, perceptron, rows, tokens

_TOKENS = np.random.default_rng(0).integers(0, 32, 2000)


def _loss(model: nn.Module, step: int) -> torch.Tensor:
    loss: torch.Tensor = model(rows(step, 5, 6)).square().mean()
    return loss


class _Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(32, 16), nn.Embedding(8, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 32, bias=False)
        self.words.weight = self.head.weight

    def forward(self, given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        inside = self.block(self.words(given) + self.places(torch.arange(given.shape[1])))
        return functional.cross_entropy(self.head(inside).flatten(0, 1), wanted.flatten())


def _batch() -> list[torch.Tensor]:
    starts = torch.randint(len(_TOKENS) - 8, (4,)).tolist()
    return [
        torch.stack([torch.from_numpy(_TOKENS[at + shift : at + shift + 8]) for at in starts])
        for shift in (0, 1)
    ]


def _writing(kind: torch.dtype) -> Program:
    """nanoGPT: batches at random places, three of them a step, a scaler, clipping, a rate that follows from the step."""
    model = _Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    scaler = torch.amp.GradScaler("cpu", enabled=kind == torch.float16)

    def train(step: int) -> None:
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (1 + math.cos(math.pi * step / 10)) / 2
        for _ in range(3):
            with torch.autocast("cpu", kind):
                loss = model(*_batch())
            scaler.scale(loss / 3).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return Program(model, [optimizer], train, None, {"scaler": scaler})


def _fetching_ahead() -> Program:
    """The next batch is drawn while the device works, as nanoGPT does it, and a checkpoint comes in between."""
    model = _Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ahead = _batch()

    def train(step: int) -> None:
        loss = model(*ahead)
        ahead[:] = _batch()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return Program(model, [optimizer], train)


def _loading(*, held: bool) -> Program:
    """An epoch a step, shuffled by a generator, in a process of its own."""
    model, noise = perceptron(), torch.Generator().manual_seed(5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(
        TensorDataset(rows(0, 20, 6)), batch_size=5, shuffle=True, num_workers=1, generator=noise
    )

    def train(step: int) -> None:
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    return Program(model, [optimizer], train, None, {"noise": noise} if held else {})


def _stacked() -> Program:
    models = [perceptron() for _ in range(3)]
    stacked, _ = stack_module_state(models)
    form = copy.deepcopy(models[0]).to("meta")
    names = {name: name.replace(".", "_") for name in stacked}
    holder = nn.ParameterDict({names[name]: nn.Parameter(value.detach()) for name, value in stacked.items()})

    def called(parameters: dict[str, torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = functional_call(
            form, {name: parameters[key] for name, key in names.items()}, (batch,)
        )
        return answer

    def loss(step: int) -> torch.Tensor:
        return vmap(called, in_dims=(0, None))(dict(holder), rows(step, 5, 6)).square().mean()

    return ordinary(holder, loss)


def _averaged() -> Program:
    """An average of weights and buffers, a second schedule, statistics that are counted again."""
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    scheduler = SWALR(optimizer, 0.01)
    plain = ordinary(model, lambda step: _loss(model, step), optimizer, scheduler)

    def train(step: int) -> None:
        plain.train(step)
        average.update_parameters(model)
        update_bn([rows(step, 5, 6)], average)

    return Program(model, [optimizer], train, scheduler, {"average": average})


def _learning_to_learn() -> Program:
    """Reptile: steps of a copy give the gradient."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(step: int) -> None:
        fast = copy.deepcopy(model)
        inner = torch.optim.SGD(fast.parameters(), lr=0.05)
        for turn in range(2):
            inner.zero_grad()
            _loss(fast, 10 * step + turn).backward()
            inner.step()
        for slow, moved in zip(model.parameters(), fast.parameters(), strict=True):
            slow.grad = slow.data - moved.data
        optimizer.step()

    return Program(model, [optimizer], train)


def _evolving() -> Program:
    """No gradient and no optimizer."""
    model = perceptron()

    def train(step: int) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.01)

    return Program(model, [], train)


class _Codebook(nn.Module):
    """A quantiser with codes that follow what they stand for; which of them are used is counted in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(6, 4)
        self.register_buffer("codes", torch.randn(8, 4))
        self.used = dict.fromkeys(range(8), 0)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        inside = self.encode(batch)
        chosen = torch.cdist(inside, self.codes).argmin(1)
        nearest = self.codes[chosen]
        for code in chosen.tolist():
            self.used[code] += 1
        self.codes.index_add_(0, chosen, 0.1 * (inside - nearest).detach())
        unused = [code for code, count in self.used.items() if count == 0]
        if unused and sum(self.used.values()) > 12:
            self.codes[unused] = inside[:1].detach()
        return inside + (nearest - inside).detach()


class _Rounding(Optimizer):
    """Steps in bfloat16 with noise from a generator of its own."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.noise = torch.Generator().manual_seed(1)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                noise = 0.01 * torch.rand(parameter.shape, generator=self.noise)
                parameter.add_((noise - group["lr"] * parameter.grad.float()).bfloat16())


def _rounded() -> Program:
    model = perceptron().bfloat16()
    return ordinary(
        model, lambda step: model(rows(step, 5, 6).bfloat16()).square().mean(), _Rounding(model.parameters())
    )


class _Outer(Optimizer):
    """A wrapper that never was initialised as an optimizer, as timm's Lookahead."""

    def __init__(self, inner: Optimizer) -> None:
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = (
            copy.copy(inner._optimizer_step_pre_hooks) for _ in range(2)
        )
        self.inner, self.param_groups, self.defaults = inner, inner.param_groups, inner.defaults
        self.state = type(inner.state)(dict)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.inner.step()
        for group in self.param_groups:
            for parameter in group["params"]:
                slow = self.inner.state[parameter].setdefault("slow", parameter.clone())
                parameter.copy_(slow.add_(parameter - slow, alpha=0.5))

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()


def _wrapped() -> Program:
    model = perceptron()
    return ordinary(model, lambda step: _loss(model, step), _Outer(torch.optim.Adam(model.parameters())))


def _quantising() -> Program:
    """Training for quantisation as PyTorch has it: a fresh program's observers have no size yet."""
    from torch.ao.quantization import get_default_qat_qconfig, prepare_qat

    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).train()
    model.qconfig = get_default_qat_qconfig("x86")
    prepared = prepare_qat(model)
    return ordinary(prepared, lambda step: _loss(prepared, step))


def _recomputed() -> Program:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4))
    return ordinary(
        model, lambda step: checkpoint(model, rows(step, 5, 6), use_reentrant=False).square().mean()
    )


class _Metric(nn.Module):
    """Sums as plain attributes, as torchmetrics has them."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(())

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.total = self.total + value.detach()
        return self.total


def _scaled_by(factor: Callable[[], Any]) -> Program:
    """A loss that something scales which no state has."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(step: int) -> None:
        optimizer.zero_grad()
        (_loss(model, step) * factor()).backward()
        optimizer.step()

    return Program(model, [optimizer], train)


def _local() -> Callable[[], Any]:
    kept = threading.local()
    kept.count = 1

    def factor() -> int:
        kept.count += 1
        return kept.count

    return factor


def _mapping() -> Callable[[], Any]:
    kept = UserDict(count=1)

    def factor() -> int:
        kept["count"] += 1
        return kept["count"]

    return factor


def _queued() -> Callable[[], Any]:
    kept: queue.Queue[int] = queue.Queue()
    kept.put(1)

    def factor() -> int:
        kept.put(kept.queue[0] + 1)
        return kept.get()

    return factor


def _cached() -> Callable[[], Any]:
    """What is drawn when it is first asked for is drawn anew in a resumed program."""

    @cache
    def factor() -> torch.Tensor:
        return torch.rand(())

    return lambda: factor()


def _on_function() -> Callable[[], Any]:
    def factor() -> int:
        factor.count = getattr(factor, "count", 0) + 1  # type: ignore[attr-defined]
        return factor.count  # type: ignore[attr-defined, no-any-return]

    return factor


def _measured() -> Program:
    model, metric = perceptron(), _Metric()
    return ordinary(model, lambda step: _loss(model, step) * (1 + metric(_loss(model, step))))


class _Augmenting:
    draws = np.random.default_rng(1)

    def __call__(self) -> float:
        return float(self.draws.random())


def _embedded() -> Program:
    model = nn.Sequential(nn.Embedding(32, 8, max_norm=1.0), nn.Flatten(), nn.Linear(32, 4))
    return ordinary(model, lambda step: model(tokens(step, 3, 4)).square().mean())


def _quantised_codes() -> Program:
    model = _Codebook()
    return ordinary(model, lambda step: _loss(model, step))


CASES = [
    Case("nanoGPT in float16", lambda: _writing(torch.float16), where="cpu"),
    Case("nanoGPT in bfloat16", lambda: _writing(torch.bfloat16), where="cpu"),
    Case("nanoGPT, a batch fetched ahead", _fetching_ahead, "unpinned", where="cpu"),
    Case("a loader that shuffles, its generator in extra", lambda: _loading(held=True), where="cpu"),
    Case("a loader that shuffles", lambda: _loading(held=False), "unpinned", where="cpu"),
    Case("models stacked by torch.func", _stacked),
    Case("an average of weights and buffers", _averaged),
    Case("Reptile", _learning_to_learn),
    Case("evolution", _evolving),
    Case("a codebook whose use is counted", _quantised_codes, "unpinned"),
    Case("stochastic rounding", _rounded, "unpinned", where="cpu"),
    Case("an optimizer that was never initialised", _wrapped),
    Case("training for quantisation", _quantising, "refused", where="cpu"),
    Case("recomputed, with dropout", _recomputed),
    Case("an embedding of a greatest norm", _embedded),
    Case("a metric in a variable", _measured, "unpinned"),
    Case("a local of a thread", lambda: _scaled_by(_local()), "unpinned"),
    Case("a mapping of the library", lambda: _scaled_by(_mapping()), "unpinned"),
    Case("a queue", lambda: _scaled_by(_queued()), "unpinned"),
    Case("a cached draw", lambda: _scaled_by(_cached()), "unpinned"),
    Case("a count on a function", lambda: _scaled_by(_on_function()), "unpinned"),
    Case("a generator in a class", lambda: _scaled_by(_Augmenting()), "unpinned"),
]
