"""What a run costs on one accelerator, against a plain loop over the same batches: per step, and with saves in between.

Two sizes: 405 M parameters (about 60 ms a step, 4.9 GB of state) and a small model (about 5 ms). Every contender trains the same model on the same
batches, in turns; a step is what lies between two marks on the device's stream, so nothing is waited for that a program would not wait for.
Run: `python -m benchmarks.gpu.loop OUT.json --place FOLDER`, with room for four states there.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import penstock as ps
import penstock.torch
from benchmarks.gpu.gpt import LENGTH, VOCABULARY, Gpt
from penstock.run import Policy

#: Steps before the first that is measured: allocators and libraries have settled.
WARM = 20
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Size:
    """A model, and how long it is trained."""

    width: int
    layers: int
    rows: int
    steps: int
    save_every: int


SIZES = {"60 ms": Size(1024, 24, 8, 220, 40), "5 ms": Size(256, 1, 8, 600, 200)}


class Training:
    """A model and what one step of it is."""

    def __init__(self, size: Size) -> None:
        torch.manual_seed(1)
        with torch.device("cuda"):
            self.model = Gpt(size.width, size.layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.marks: list[torch.cuda.Event] = []

    def step(
        self,
        tokens: torch.Tensor,
        accept: Callable[[torch.Tensor], bool] | None = None,
        told: Callable[[torch.Tensor], None] = lambda loss: None,
    ) -> torch.Tensor:
        """Its loss, which is still being computed; told before backward, and accepted after it."""
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss: torch.Tensor = self.model(tokens)
        told(loss.detach())
        loss.backward()
        if accept is None or accept(loss.detach()):
            self.optimizer.step()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        self.marks.append(mark)
        return loss.detach()

    def times(self) -> list[float]:
        """Milliseconds of every measured step."""
        torch.cuda.synchronize()
        measured = self.marks[WARM:]
        return [before.elapsed_time(after) for before, after in itertools.pairwise(measured)]


def plain(size: Size, recipe: ps.Recipe, registry: ps.Registry) -> dict[str, Any]:
    """A loop as people write it: the loss is looked at every ten steps."""
    training, losses = Training(size), []
    with penstock.torch.loader(recipe, registry=registry, device="cuda") as batches:
        for batch in itertools.islice(batches, size.steps):
            losses.append(training.step(batch["tokens"]))
            if len(losses) % 10 == 0:
                losses[-10].item()
    return _described(training.times())


def within(
    size: Size, recipe: ps.Recipe, registry: ps.Registry, place: Path, *, how: str, saves: bool
) -> dict[str, Any]:
    """The same steps in a run. It accepts under the usual rules, or under one that may skip a step and so has to look at it first.

    Such a loop may report the loss before backward: then it is looked at while the device works on the gradients.
    """
    training = Training(size)
    policy = Policy(
        non_finite="skip" if "skip" in how else "stop",
        save_every=size.save_every if saves else None,
        when_busy="postpone",
        stop_at=size.steps,
        keep=ps.Keep(last=1),
    )
    run = ps.Run(place, recipe=recipe, registry=registry, policy=policy, seed=1)
    done = 0.0
    for step, batch in run.steps(penstock.torch.state(training.model, training.optimizer), device="cuda"):
        tokens = batch["tokens"]
        if how == "report":
            run.report(loss=training.step(tokens), tokens=tokens.numel())
        elif how == "report, accept, skip":
            told = partial(_report, run, tokens.numel())
            training.step(tokens, lambda _: run.accept(), told)
        else:
            training.step(tokens, partial(run.accept, tokens=tokens.numel()))
        if step == size.steps - 1:
            torch.cuda.synchronize()
            done = time.perf_counter()
    ended = time.perf_counter() - done
    figures = _described(training.times())
    if saves:
        figures |= {"end s": round(ended, 2), **_commits(place)}
    return figures


def _report(run: ps.Run, tokens: int, loss: torch.Tensor) -> None:
    run.report(loss=loss, tokens=tokens)


def _described(times: list[float]) -> dict[str, Any]:
    usual = statistics.median(times)
    slow = sorted(times, reverse=True)[:6]
    return {
        "mean ms": round(statistics.fmean(times), 3),
        "median ms": round(usual, 3),
        "longest over usual": round(slow[0] / usual, 2),
        "longest ms": [round(duration, 1) for duration in slow],
    }


def _commits(place: Path) -> dict[str, Any]:
    from penstock.run.journal import journal

    commits = [entry.facts for entry in journal.read(place) if entry.kind == "commit"]
    return {
        "blocked s": [entry["blocked_s"] for entry in commits],
        "durable s": [entry["durable_s"] for entry in commits],
        "GB": round(commits[-1]["bytes"] / 1e9, 2),
    }


def _recipe(folder: Path, size: Size) -> tuple[ps.Recipe, ps.Registry]:
    """Random tokens, as nanoGPT keeps them."""
    count = size.rows * (LENGTH + 1) * (size.steps + 8)
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, count, dtype=np.uint16)
    (folder / "train.bin").write_bytes(tokens.tobytes())
    registry = ps.Registry(folder / "registry")
    registry.register("tokens", folder / "train.bin", policy=ps.Policy(dtype="uint16"))
    recipe = ps.Recipe(
        sources=(ps.Source("tokens@1"),), stages=(ps.Pack(LENGTH + 1, "crop"),), batch=size.rows, seed=1
    )
    return recipe, registry


def contenders(
    size: Size, recipe: ps.Recipe, registry: ps.Registry, folder: Path, rounds: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """All, one after another, several times."""
    for turn in range(rounds):
        yield "plain", plain(size, recipe, registry)
        hows = ("report", "accept", "accept, skip", "report, accept, skip")
        for how, saves in (*((how, False) for how in hows), ("report", True)):
            name = f"run, {how}{', saves' if saves else ''}"
            with tempfile.TemporaryDirectory(dir=folder) as place:
                figures = within(size, recipe, registry, Path(place) / f"{turn}", how=how, saves=saves)
            yield name, figures


def measure(folder: Path, sizes: list[str], rounds: int) -> dict[str, Any]:
    """Every size, every contender; ratios to the plain loop of the same turn."""
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
    }
    for name in sizes:
        size = SIZES[name]
        with tempfile.TemporaryDirectory(dir=folder) as place:
            recipe, registry = _recipe(Path(place), size)
            rows: dict[str, list[dict[str, Any]]] = {}
            for contender, row in contenders(size, recipe, registry, Path(place), rounds):
                turn = len(rows.get(contender, []))
                if contender != "plain":
                    row["over plain"] = round(row["mean ms"] / rows["plain"][turn]["mean ms"] - 1, 4)
                rows.setdefault(contender, []).append(row)
                print(name, contender, json.dumps(row), flush=True)
            report[name] = rows
    return report


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--size", choices=SIZES, action="append", help="only this one")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    report = measure(options.place, options.size or list(SIZES), options.rounds)
    options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
