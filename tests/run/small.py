"""A model in numpy, and a loop over it as a user would write it, with faults planted where a test wants them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.run import Policy, Run
from tests.torch.stream import Stream


class Fault(Exception):
    """Something in the user's own code."""


def make(stream: Stream, out: Path, policy: Policy, **options: Any) -> Run:
    """A run over the stream."""
    return ps.Run(out, recipe=stream.recipe(), registry=stream.registry, policy=policy, seed=3, **options)


def start() -> dict[str, Any]:
    """The first state."""
    return {"weights": np.zeros(64), "taken": 0}


def update(run: Run, state: dict[str, Any], batch: Any) -> tuple[float, Any]:
    """Loss and update of a batch; noise comes from the run, so that generators matter."""
    tokens = batch["tokens"].astype(np.int64)
    counts = np.bincount(tokens.ravel() % 64, minlength=64) / tokens.size
    noise = run.generator("dropout").normal(size=64)
    loss = float(np.abs(state["weights"] - counts).sum()) + 1.0
    return loss, 0.1 * (counts - state["weights"]) + 1e-3 * noise


def train(
    run: Run,
    *,
    bad: dict[int, float] | None = None,
    early: bool = True,
    at: Callable[[int], None] | None = None,
) -> tuple[dict[str, Any], list[int]]:
    """Train to the end; the state, and the steps that were executed. ``bad`` are losses that stand for those of a step."""
    state, executed = start(), []
    for step, batch in run.steps(state):
        executed.append(step)
        loss, change = update(run, state, batch)
        if at is not None:
            at(step)
        loss = (bad or {}).get(step, loss)
        if not early:
            state["weights"] += change
            state["taken"] += 1
            run.report(loss=loss)
        elif run.accept(loss):
            state["weights"] += change
            state["taken"] += 1
    return state, executed
