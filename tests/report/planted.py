"""Real runs in which something is slow: ``python -m tests.report.planted STREAM OUT`` makes one run for each case, below OUT.

The model's work is a pause, so that a step has a length of its own on any machine; what is planted is a pause as well. Every rank notes what
the plant really took, by a clock of its own, in ``CASE.RANK.json``.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import penstock as ps
import penstock.torch
from penstock.events import points
from penstock.run import Policy
from penstock.state.ranks.clock import Clock
from tests.run.programs import Model, life, loss_of
from tests.run.small import start
from tests.torch.stream import Stream

pause = Clock().pause
STEPS = 20
FORWARD_S, BACKWARD_S = 0.01, 0.02
#: What is planted, in seconds: in every fifth step, in a save, in a row, in the steps of one rank.
SLEEP_S, SAVE_S, ROW_S, RANK_S = 0.25, 0.1, 0.004, 0.12
SLOW_RANK = 2
RANKS = 4


@dataclass(frozen=True)
class Plant:
    """Where and when a pause is planted."""

    ranks: int = 1
    every: int = 0
    save_every: int = 1000
    slow_rows: bool = False
    slow_rank: bool = False


CASES = {
    "clean": Plant(),
    "clean_again": Plant(),
    "sleep": Plant(every=5),
    "data": Plant(slow_rows=True),
    "checkpoints": Plant(save_every=2),
    "rank_clean": Plant(ranks=RANKS),
    "rank_user": Plant(ranks=RANKS, slow_rank=True),
    "rank_data": Plant(ranks=RANKS, slow_rows=True),
}


@dataclass
class Watch:
    """What the plant took, by the program's own clock."""

    planted_s: float = 0.0
    bodies_s: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def plant(self) -> Iterator[None]:
        """Around what is planted."""
        begin = time.perf_counter()
        yield
        self.planted_s += time.perf_counter() - begin

    @contextmanager
    def body(self) -> Iterator[None]:
        """Around the body of the loop."""
        begin = time.perf_counter()
        yield
        self.bodies_s += time.perf_counter() - begin

    def write(self, out: Path, rank: int) -> None:
        """Note it."""
        outside_s = time.perf_counter() - self.began - self.bodies_s
        facts = {"planted_s": self.planted_s, "outside_s": outside_s}
        out.with_suffix(f".{rank}.json").write_text(json.dumps(facts))


def slow_row(tokens: Any, random: Any) -> Any:
    """A stage that takes long: on all ranks of one, on one rank of four, where rows are fewer and slower."""
    ranks = int(os.environ["WORLD_SIZE"])
    if ranks == 1 or os.environ["RANK"] == str(SLOW_RANK):
        pause(ROW_S * ranks)
    return tokens


def recipe_of(stream: Stream, plant: Plant) -> ps.Recipe:
    """The stream, with a slow stage where one is planted."""
    recipe = stream.recipe()
    stages = (*recipe.stages, ps.Map(slow_row, random=True)) if plant.slow_rows else recipe.stages
    return replace(recipe, stages=stages)


def alone(stream: Stream, out: Path, plant: Plant) -> None:
    """One rank, without a framework."""
    policy = Policy(stop_at=STEPS, save_every=plant.save_every)
    run = ps.Run(out, recipe=recipe_of(stream, plant), registry=stream.registry, policy=policy, seed=3)
    if plant.save_every < STEPS:
        # What a capture of a large state takes.
        points._plans.update(points._parse(f"state.capture=hold:{SAVE_S}"))
    state, watch = start(), Watch()
    for step, _ in run.steps(state):
        if step == 0:
            watch = Watch()
        with watch.body():
            with run.span("forward"):
                pause(FORWARD_S)
            with run.span("backward"):
                pause(BACKWARD_S)
            with run.span("optimizer"):
                state["weights"] += 1
            if plant.every and step % plant.every == plant.every - 1:
                with watch.plant():
                    pause(SLEEP_S)
            run.report(loss=1.0)
    watch.write(out, 0)


def gang(stream: Stream, out: Path, plant: Plant) -> None:
    """A rank of DDP; hooks divide its steps."""
    penstock.torch.join("gloo")
    torch.set_num_threads(1)
    policy = Policy(stop_at=STEPS, save_every=plant.save_every)
    run = ps.Run(out, recipe=recipe_of(stream, plant), registry=stream.registry, policy=policy, seed=3)
    model = penstock.torch.ddp(Model(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    watch = Watch()
    for step, batch in run.steps(penstock.torch.state(model, optimizer)):
        if step == 0:
            watch = Watch()
        with watch.body():
            if plant.slow_rank and run.rank == SLOW_RANK:
                with watch.plant():
                    pause(RANK_S)
            with run.span("forward"):
                pause(FORWARD_S)
                loss = loss_of(model, batch["tokens"])
            with run.span("backward"):
                pause(BACKWARD_S)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.report(loss=loss.detach())
    watch.write(out, run.rank)


def main(stream: str, out: str) -> None:
    """All cases, each in forks of this process: one import for all of them."""
    for case, plant in CASES.items():
        place = Path(out) / case
        work = partial(gang if plant.ranks > 1 else alone, Stream(Path(stream)), place, plant)
        assert life(work, plant.ranks, 0, place) == [0] * plant.ranks, case


if __name__ == "__main__":
    main(*sys.argv[1:])
