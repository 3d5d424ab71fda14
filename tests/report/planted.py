"""Real runs in which something is slow: ``python -m tests.report.planted CASE STREAM OUT``.

The model's work is a pause, so that a step has a length of its own on any machine; what is planted is a pause as well.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.events import points
from penstock.run import Policy
from penstock.state.ranks.clock import Clock
from tests.run.small import start
from tests.torch.stream import Stream

pause = Clock().pause
STEPS = 24
FORWARD_S, BACKWARD_S = 0.01, 0.02
#: What is planted, in seconds.
SLEEP_S, SAVE_S, DATA_S, RANK_S = 0.25, 0.06, 0.06, 0.08
SLOW_RANK = 2


@dataclass(frozen=True)
class Plant:
    """Where and when a pause is planted."""

    every: int = 0
    save_every: int = 0
    slow_data: bool = False
    slow_rank: str = ""


CASES = {
    "clean": Plant(),
    "sleep": Plant(every=5),
    "data": Plant(slow_data=True),
    "checkpoints": Plant(save_every=2),
    "rank_clean": Plant(),
    "rank_user": Plant(slow_rank="user"),
    "rank_data": Plant(slow_data=True, slow_rank="data"),
}


def slow_row(tokens: Any, random: Any) -> Any:
    """A stage that takes long, on all ranks or on one."""
    if os.environ.get("RANK", str(SLOW_RANK)) == str(SLOW_RANK):
        pause(DATA_S / 16)
    return tokens


def recipe_of(stream: Stream, plant: Plant) -> ps.Recipe:
    """The stream, with a slow stage where one is planted."""
    recipe = stream.recipe()
    if plant.slow_data:
        recipe = replace(recipe, stages=(*recipe.stages, ps.Map(slow_row, random=True)))
    return recipe


def alone(stream: Stream, out: Path, plant: Plant) -> None:
    """One rank, without a framework."""
    policy = Policy(stop_at=STEPS, save_every=plant.save_every or 1000)
    run = ps.Run(out, recipe=recipe_of(stream, plant), registry=stream.registry, policy=policy, seed=3)
    state = start()
    if plant.save_every:
        # What a capture of a large state takes.
        points._plans.update(points._parse(f"state.capture=hold:{SAVE_S}"))
    for step, _ in run.steps(state):
        with run.span("forward"):
            pause(FORWARD_S)
        with run.span("backward"):
            pause(BACKWARD_S)
        with run.span("optimizer"):
            state["weights"] += 1
        if plant.every and step % plant.every == plant.every - 1:
            pause(SLEEP_S)
        run.report(loss=1.0)


def gang(stream: Stream, out: Path, plant: Plant) -> None:
    """Four ranks of DDP."""
    import torch

    from tests.run.programs import Model, life, loss_of

    def rank() -> None:
        import penstock.torch

        penstock.torch.join("gloo")
        torch.set_num_threads(1)
        policy = Policy(stop_at=STEPS, save_every=1000)
        run = ps.Run(out, recipe=recipe_of(stream, plant), registry=stream.registry, policy=policy, seed=3)
        model = penstock.torch.ddp(Model(8))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _, batch in run.steps(penstock.torch.state(model, optimizer)):
            if plant.slow_rank == "user" and run.rank == SLOW_RANK:
                pause(RANK_S)
            with run.span("forward"):
                pause(FORWARD_S)
                loss = loss_of(model, batch["tokens"])
            with run.span("backward"):
                pause(BACKWARD_S)
                loss.backward()
            with run.span("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            run.report(loss=loss.detach())

    assert life(rank, 4, 0, out) == [0] * 4


def main(case: str, stream: str, out: str) -> None:
    """One of the cases."""
    work: Callable[..., None] = gang if case.startswith("rank") else alone
    partial(work, Stream(Path(stream)), Path(out))(CASES[case])


if __name__ == "__main__":
    main(*sys.argv[1:])
