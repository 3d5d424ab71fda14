"""What a program carries from step to step in its own variables is named; what a step makes for itself is not."""

import itertools
import time
import warnings
import weakref
from argparse import Namespace
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import penstock as ps
from penstock.torch import state
from tests.torch.stream import Stream

_TOTAL = 0
_SETTINGS = {"temperature": 1.0}


class Trainer:
    """A program in a class."""

    best: float

    def __init__(self) -> None:
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.memory: torch.Tensor | None = None
        self.steps = 0

    def train(self) -> None:
        """One step."""
        self.steps += 1
        self.memory = torch.ones(2) * self.steps
        self.best = float(self.steps)


class Endless:
    """An iterator of the program's own."""

    def __init__(self) -> None:
        self.at = 0

    def __next__(self) -> int:
        self.at += 1
        return self.at


def _counter() -> Callable[[], None]:
    """A function that keeps a count."""
    calls = [0]

    def counted() -> None:
        calls[0] += 1

    return counted


def _named(tree: Any) -> list[str]:
    return sorted(text.split(" ")[0] for text in tree.unpinned())


def test_what_is_carried_in_variables_is_named() -> None:
    """Goal: nothing is lost silently. Method: variables of every kind are changed as a loop would, in functions, objects, closures and globals."""
    global _TOTAL
    trainer, own = Trainer(), Endless()
    hidden, large = (torch.zeros(2), torch.zeros(3)), torch.zeros(200, 200)
    seen: deque[int] = deque(maxlen=2)
    draw, options = np.random.default_rng(0), Namespace(scale=1.0)
    numbers, generated = itertools.count(), (at for at in range(9))
    table, missing = np.zeros((300, 300)), None

    bound = partial(_counter())
    tree = state(trainer.model, trainer.optimizer)
    assert _named(tree) == ["numbers"], "whether it was read, it does not say"
    for step in range(3):
        trainer.train()
        next(own)
        hidden = tuple(part + 1 for part in hidden)
        large = large + 1
        seen.append(step)
        draw.random()
        options.scale *= 0.5
        next(generated)
        table[step] += 1
        bound()
        missing = torch.ones(1) * step
        _TOTAL += 1
        _SETTINGS["temperature"] *= 0.9
    assert numbers
    assert missing is not None
    expected = [
        "trainer.memory",
        "trainer.steps",
        "trainer.best",
        "own.at",
        "hidden",
        "large",
        "seen",
        "draw",
    ]
    expected += [
        "options.scale",
        "numbers",
        "generated",
        "table",
        "counted.calls",
        "missing",
        "_TOTAL",
        "_SETTINGS",
    ]
    assert _named(tree) == sorted(expected)


def test_what_a_step_makes_and_what_the_state_has_is_not_named() -> None:
    """Goal: no word about what comes back. Method: a loop with everything that the state has, in variables too, with temporaries, clocks and
    what never changes."""
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    parameters, weights = (
        list(model.parameters()),
        {name: tensor.data for name, tensor in model.named_parameters()},
    )
    running, first = model[1].running_mean, model[0].weight.data[0]
    extra: dict[str, Any] = {"hidden": torch.zeros(2), "history": [], "noise": torch.Generator()}
    history, noise = extra["history"], extra["noise"]
    began, data, words = time.time(), torch.ones(3, 4), ["a", "b"]
    moments = optimizer.state
    tree = state(model, optimizer, scheduler=scheduler, extra=extra)
    for step in range(3):
        optimizer.zero_grad()
        loss = (model(data) + torch.randn(2, generator=noise)).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        history.append(loss.item())
        extra["hidden"] = extra["hidden"] + step
        began = time.time()
    kept = (parameters, weights, running, first, words, moments, began)
    assert all(value is not None for value in kept)
    assert tree.unpinned() == ()


def test_numbers_are_named_and_not_warned_about(tmp_path: Any) -> None:
    """Goal: a warning is about what training surely computes with; a record of losses is only named. Method: saves with a list and a tensor."""
    model, losses, hidden = nn.Linear(4, 2), [0.0], torch.zeros(2)
    tree = state(model)
    with ps.Checkpoints(tmp_path) as checkpoints:
        losses.append(1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            checkpoints.save(1, tree).wait()
        hidden = hidden + 1
        with pytest.warns(UserWarning, match=r"^hidden changes in training, is a variable of the program"):
            checkpoints.save(2, tree).wait()
    assert _named(tree) == ["hidden", "losses"]
    assert hidden.sum() == 2


def test_looking_keeps_nothing_alive() -> None:
    """Goal: memory of a step is given back. Method: a tensor and an object that only variables hold, gone after the variables let go."""
    model, large, trainer = nn.Linear(4, 2), torch.zeros(200, 200), Trainer()
    gone = [weakref.ref(large), weakref.ref(trainer)]
    tree = state(model)
    assert tree.unpinned() == ()
    del large, trainer
    assert [reference() for reference in gone] == [None, None]


def test_a_run_names_what_its_loop_carries(stream: Stream, tmp_path: Any) -> None:
    """Goal: the same for a run, from when its loop begins: what is made between state and loop is looked at as well. Method: a short run."""
    run = ps.Run(
        tmp_path / "run", recipe=stream.recipe(), registry=stream.registry, policy=ps.run.Policy(stop_at=3)
    )
    model = nn.Linear(32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tree = state(model, optimizer)
    hidden = torch.zeros(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, batch in run.steps(tree):
            optimizer.zero_grad()
            output = model(batch["tokens"].float()[:, :32] / 1000).mean() + hidden.detach()
            output.square().mean().backward()
            optimizer.step()
            hidden = output.detach()
            run.report(loss=output.detach().sum())
    carried = [text.split(" ")[0] for text in run.unpinned if "is a variable of the program" in text]
    assert carried == ["hidden"]


def test_objects_that_do_not_want_to_be_looked_at_are_left_alone() -> None:
    """Goal: a look never ends a program. Method: objects whose attributes fail, arrays of objects, tensors without contents."""

    class Failing:
        __slots__ = ("inner",)

        @property
        def __dict__(self) -> Any:
            raise RuntimeError("nobody looks here")

    failing, objects = Failing(), np.array([{}, []], dtype=object)
    meta, sparse, lazy = torch.zeros(3, device="meta"), torch.eye(3).to_sparse(), nn.LazyLinear(3)
    structured = np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])
    tree = state(nn.Linear(4, 2))
    assert tree.unpinned() == ()
    structured["b"] += 1
    assert _named(tree) == ["structured"]
    assert all(thing is not None for thing in (failing, objects, meta, sparse, lazy))
