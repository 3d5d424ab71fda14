"""Real runs in which something is slow: ``python -m tests.report.slow_runs STREAM OUT`` makes one run for each case, below OUT.

The model's work is a pause, so that a step has a length of its own on any machine; what is planted is a pause as well. Every rank notes what
the plant really took, by a clock of its own, in ``CASE.RANK.json``.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import penstock as ps
import penstock.torch
from penstock.run import Policy
from penstock.state import checkpoints
from penstock.state.ranks.clock import Clock
from tests.run.programs import Model, life, loss_of
from tests.run.small import start
from tests.torch.stream import Stream

pause = Clock().pause
STEPS = 20
FORWARD_S, BACKWARD_S = 0.01, 0.02
#: What is planted, in seconds: in every fifth step, in a save, in a row, in the steps of one rank, in a part.
SLEEP_S, SAVE_S, ROW_S, RANK_S, PART_S = 0.25, 0.1, 0.004, 0.12, 0.04
#: Objects that a collection looks at: about as long as a step.
GARBAGE = 400_000
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
    #: A part of every step, around a pause.
    part: str = ""
    #: Garbage is collected in every step.
    collects: bool = False
    #: Samples are padded, not packed.
    pads: bool = False
    #: One rank pauses inside of backward, before the others can leave it, in every fifth step.
    slow_backward: bool = False


CASES = {
    "clean": Plant(),
    "clean_again": Plant(),
    "sleep": Plant(every=5),
    "data": Plant(slow_rows=True),
    "checkpoints": Plant(save_every=2),
    "transfer": Plant(part="transfer"),
    "eval": Plant(part="eval"),
    "gc": Plant(collects=True),
    "padding": Plant(pads=True),
    "rank_clean": Plant(ranks=RANKS),
    "rank_user": Plant(ranks=RANKS, slow_rank=True),
    "rank_data": Plant(ranks=RANKS, slow_rows=True),
    "rank_backward": Plant(ranks=RANKS, slow_backward=True),
}


@dataclass
class Watch:
    """What the plant took, by the program's own clock."""

    planted_s: float = 0.0
    #: Between the body of a step and that of the next.
    between_s: float = 0.0
    left: float | None = None

    @contextmanager
    def plant(self) -> Iterator[None]:
        """Around what is planted."""
        begin = time.perf_counter()
        yield
        self.planted_s += time.perf_counter() - begin

    @contextmanager
    def body(self) -> Iterator[None]:
        """Around the body of the loop."""
        if self.left is not None:
            self.between_s += time.perf_counter() - self.left
        yield
        self.left = time.perf_counter()

    def write(self, out: Path, rank: int) -> None:
        """Note it."""
        facts = {"planted_s": self.planted_s, "between_s": self.between_s}
        out.with_suffix(f".{rank}.json").write_text(json.dumps(facts))


def slow_row(tokens: Any, random: Any) -> Any:
    """A stage that takes long: on all ranks of one, on one rank of four, where rows are fewer and slower."""
    ranks = int(os.environ["WORLD_SIZE"])
    if ranks == 1 or os.environ["RANK"] == str(SLOW_RANK):
        # Longer than a step takes on a busy machine: a feed that reads ahead would hide it.
        pause(ROW_S * ranks * (1 if ranks == 1 else 2))
    return tokens


def slow_capture(watch: Watch, point: str) -> None:
    """What a capture of a large state takes, after the first step."""
    if point == "state.capture" and watch.left is not None:
        with watch.plant():
            pause(SAVE_S)


def recipe_of(stream: Stream, plant: Plant) -> ps.Recipe:
    """The stream, with a slow stage where one is planted."""
    recipe = stream.recipe()
    if plant.pads:
        return replace(recipe, stages=(*recipe.stages[:-1], ps.Truncate(128), ps.Pad(128)))
    stages = (*recipe.stages, ps.Map(slow_row, random=True)) if plant.slow_rows else recipe.stages
    return replace(recipe, stages=stages)


def planted(run: ps.Run, part: str, watch: Watch) -> None:
    """A pause that belongs to a part."""
    with run.phase("eval") if part == "eval" else run.span(part), watch.plant():
        pause(PART_S)


def alone(stream: Stream, out: Path, plant: Plant) -> None:
    """One rank, without a framework."""
    policy = Policy(stop_at=STEPS, save_every=plant.save_every)
    run = ps.Run(out, recipe=recipe_of(stream, plant), registry=stream.registry, policy=policy, seed=3)
    state, watch = start(), Watch()
    if plant.save_every < STEPS:
        checkpoints.reach = partial(slow_capture, watch)
    garbage = [[] for _ in range(GARBAGE)] if plant.collects else []
    for step, _ in run.steps(state):
        with watch.body():
            if plant.part:
                planted(run, plant.part, watch)
            if garbage:
                with watch.plant():
                    gc.collect()
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
        with watch.body():
            if plant.slow_rank and run.rank == SLOW_RANK:
                with watch.plant():
                    pause(RANK_S)
            with run.span("forward"):
                pause(FORWARD_S)
                loss = loss_of(model, batch["tokens"])
            with run.span("backward"):
                pause(BACKWARD_S)
                if plant.slow_backward and run.rank == SLOW_RANK and step % 5 == 4:
                    with watch.plant():
                        pause(SLEEP_S)
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
