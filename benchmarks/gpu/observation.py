"""What observing costs on one accelerator: the same steps plain, in a run without and in a run with recording; and that nothing waits for the device.

A 405 M GPT, eager; every contender keeps its model, and rounds alternate, so that what drifts drifts for all. A step is what lies between two marks
on the device's stream. Then: what one mark, one copied value and one row cost the loop's thread; the device's split against the step; and a loop
under ``torch.cuda.set_sync_debug_mode("error")``, where any wait for the device raises.
Run: ``python -m benchmarks.gpu.observation OUT.json --place FOLDER``.
"""

import argparse
import contextlib
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import penstock as ps
import penstock.torch
from benchmarks.gpu.gpt import LENGTH
from benchmarks.gpu.loop import SIZES, Size, Training, _recipe
from penstock.observe.steps import DEVICE, UNMEASURED, read_steps
from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from penstock.run import Policy
from penstock.torch.device.readback import readback

ROUNDS = 20
#: Steps of a round; the first ones are not measured, because rounds begin with an empty queue.
STEPS, WARM = 24, 4


Step = Callable[[Training], torch.Tensor]


class Contender:
    """One of the loops, stopped between rounds."""

    def __init__(self, name: str, size: Size) -> None:
        self.name, self.training = name, Training(size)
        #: Made when the first round begins, because a run looks at its model then.
        self.steps: Iterator[Step] = iter(())
        #: What calls of ``backward`` reach in its rounds: hooks of the observed run are no part of the others.
        self.backward = torch.autograd.backward
        self.pause: Callable[[], None] = lambda: None
        #: Milliseconds of the device per step, and of the host, by round.
        self.rounds: list[float] = []
        self.host: list[float] = []

    def round(self) -> None:
        """Some steps, measured on the device."""
        torch.cuda.synchronize()
        self.training.marks.clear()
        outside, torch.autograd.backward = torch.autograd.backward, self.backward
        began = 0.0
        for number, step in enumerate(itertools.islice(self.steps, STEPS)):
            if number == 0:
                # A run sets its hooks with its first step.
                self.backward = torch.autograd.backward
            if number == WARM:
                began = time.perf_counter()
            step(self.training)
        self.host.append((time.perf_counter() - began) / (STEPS - WARM) * 1000)
        self.pause()
        torch.autograd.backward = outside
        torch.cuda.synchronize()
        marks = self.training.marks[WARM - 1 :]
        self.rounds.append(marks[0].elapsed_time(marks[-1]) / (len(marks) - 1))


def plain(recipe: ps.Recipe, registry: ps.Registry) -> Iterator[Step]:
    """A loop as people write it, whose losses nobody looks at."""
    with penstock.torch.loader(recipe, registry=registry, device="cuda") as batches:
        for batch in batches:
            yield partial(_step, tokens=batch["tokens"])


def _step(training: Training, *, tokens: torch.Tensor) -> torch.Tensor:
    return training.step(tokens)


def within(
    contender: Contender, recipe: ps.Recipe, registry: ps.Registry, place: Path, *, record: bool
) -> Iterator[Step]:
    """The same steps in a run that judges the loss of every step."""
    policy = Policy(save_every=None, keep=ps.Keep(last=1))
    run = ps.Run(place, recipe=recipe, registry=registry, policy=policy, seed=1)
    training = contender.training

    def reported(training: Training, *, tokens: torch.Tensor) -> torch.Tensor:
        loss = training.step(tokens)
        run.report(loss=loss, tokens=tokens.numel())
        return loss

    for _, batch in run.steps(
        penstock.torch.state(training.model, training.optimizer), record=record, device="cuda"
    ):
        life = run._now()
        # While others have their turn, no step is under way, and nobody samples stacks.
        contender.pause = life.observed.pause
        yield partial(reported, tokens=batch["tokens"])


def alternate(
    size: Size, recipe: ps.Recipe, registry: ps.Registry, folder: Path, rounds: int
) -> dict[str, Any]:
    """Rounds of all contenders in turns."""
    first, second, third = (Contender(name, size) for name in ("plain", "run", "observed"))
    first.steps = plain(recipe, registry)
    second.steps = within(second, recipe, registry, folder / "run", record=False)
    third.steps = within(third, recipe, registry, folder / "observed", record=True)
    contenders = (first, second, third)
    for turn in range(rounds + 1):
        for contender in contenders:
            contender.round()
            if turn == 0:
                contender.rounds.clear()
                contender.host.clear()
    found: dict[str, Any] = {
        contender.name: {
            "median ms": round(statistics.median(contender.rounds), 3),
            "least ms": round(min(contender.rounds), 3),
            "greatest ms": round(max(contender.rounds), 3),
            "host ms": round(statistics.median(contender.host), 3),
        }
        for contender in contenders
    }
    for contender in contenders[1:]:
        over = [mine / other - 1 for mine, other in zip(contender.rounds, first.rounds, strict=True)]
        found[contender.name]["over plain, median"] = round(statistics.median(over), 5)
        quartiles = [round(each, 5) for each in statistics.quantiles(over, n=4)]
        found[contender.name]["over plain, quartiles"] = quartiles
    return found


def split(place: Path) -> dict[str, Any]:
    """The device's split of an uninterrupted loop against the host's time for the same steps, once its queue is full."""
    (rows,) = read_steps(place)
    columns = {name: values[STEPS:] for name, values in rows.columns.items()}
    parts = {name: columns[name] for name in DEVICE}
    sums = sum(np.where(values == UNMEASURED, 0, values) for values in parts.values())
    measured = np.array(sums) > 0
    host = columns["begin"][-1] - columns["begin"][0]
    ratio = np.array(sums)[:-1].sum() / host
    medians = {
        name: round(float(np.median(values[values != UNMEASURED])) / 1e6, 3)
        for name, values in parts.items()
        if (values != UNMEASURED).any()
    }
    return {
        "rows": len(columns["begin"]),
        "with device parts": int(measured.sum()),
        "device over host": round(float(ratio), 4),
        "ms": medians,
    }


def costs() -> dict[str, float]:
    """Microseconds of the loop's thread, for one of each; the device is idle, so nothing waits in the queue."""
    value, stream = torch.ones((), device="cuda"), torch.cuda.current_stream()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(200)]

    def per_call(work: Callable[[int], object]) -> float:
        times = []
        for _ in range(10):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for number in range(200):
                work(number)
            times.append((time.perf_counter() - began) / 200 * 1e6)
        return round(min(times), 2)

    pending: list[Any] = []
    found = {"record(stream)": per_call(lambda number: events[number].record(stream))}
    found["record()"] = per_call(lambda number: events[number].record())
    found["value copied"] = per_call(lambda number: pending.append(readback(value)))
    found["value looked at"] = per_call(lambda number: pending.pop().item() if pending else None)
    with tempfile.TemporaryDirectory() as folder:
        from penstock.observe.steps import StepRecorder
        from penstock.torch.device.marks import DeviceMarks

        recorder = StepRecorder(Path(folder), 0, 0)
        marks = DeviceMarks(torch.device("cuda", torch.cuda.current_device()), recorder)
        parts = ("data", "transfer", "forward", "user", "backward", "user", "optimizer", "user")
        found["a mark"] = per_call(
            lambda number: marks.turn(None) if number % 8 == 0 else marks.mark(parts[number % 8])
        )
        marks.close()
        recorder.close()
    return found


def without_waits(size: Size, recipe: ps.Recipe, registry: ps.Registry, place: Path) -> str:
    """An observed loop in which every wait for the device raises."""
    training = Training(size)
    run = ps.Run(place, recipe=recipe, registry=registry, policy=Policy(save_every=None), seed=1)
    state = penstock.torch.state(training.model, training.optimizer)
    try:
        with contextlib.closing(run.steps(state, device="cuda")) as steps:
            for step, batch in steps:
                if step == WARM:
                    torch.cuda.set_sync_debug_mode("error")
                run.report(loss=training.step(batch["tokens"]), tokens=batch["tokens"].numel())
                if step == STEPS:
                    torch.cuda.set_sync_debug_mode("default")
                    break
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return f"{STEPS - WARM} steps, nothing raised"


def counted(size: Size, recipe: ps.Recipe, registry: ps.Registry, place: Path) -> dict[str, Any]:
    """What `penstock report` says about the MFU of a run that counts its FLOPs; steps under the mode in which any wait for the device raises."""
    training = Training(size)
    example = torch.zeros(size.rows, LENGTH, dtype=torch.int64)
    flops = penstock.torch.flops(
        training.model, example, forward=lambda model, batch: model(batch), autocast=torch.bfloat16
    )
    run = ps.Run(place, recipe=recipe, registry=registry, policy=Policy(save_every=None), seed=1)
    state = penstock.torch.state(training.model, training.optimizer)
    try:
        with contextlib.closing(run.steps(state, flops=flops, device="cuda")) as steps:
            for step, batch in steps:
                if step == WARM:
                    torch.cuda.set_sync_debug_mode("error")
                run.report(loss=training.step(batch["tokens"]), tokens=batch["tokens"].numel())
                if step == 6 * STEPS:
                    torch.cuda.set_sync_debug_mode("default")
                    break
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return report_of(evidence_of(place), steps=range(STEPS, 6 * STEPS)).mfu


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--size", choices=SIZES, default="60 ms")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    size = SIZES[chosen.size]
    steps = STEPS * (chosen.rounds + 4)
    size = Size(size.width, size.layers, size.rows, steps, size.save_every)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "size": chosen.size,
    }
    with tempfile.TemporaryDirectory(dir=chosen.place) as folder:
        recipe, registry = _recipe(Path(folder), size)
        found["µs"] = costs()
        found["sync debug mode"] = without_waits(size, recipe, registry, Path(folder) / "errors")
        found["mfu"] = counted(size, recipe, registry, Path(folder) / "counted")
        found["split"] = split(Path(folder) / "counted")
        print(json.dumps(found, ensure_ascii=False), flush=True)
        found |= alternate(size, recipe, registry, Path(folder), chosen.rounds)
    print(json.dumps(found, ensure_ascii=False), flush=True)
    chosen.out.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
