"""Real runs to look at: one with a planted pause, an own failure and a second life, one without rows, one whose FLOPs are counted, and a
folder that is no run."""

import math
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np

from penstock.observe.flops import StepFlops
from penstock.observe.steps.flop_record import FlopNote
from penstock.run import Policy
from penstock.state.ranks.clock import Clock
from tests.run.small import Fault, make, start, update
from tests.torch.stream import Stream, make_stream

ROOT = Path(__file__).parents[2]
STEPS, FAILS_AT, SAVE_EVERY = 200, 113, 25
#: Every so many steps the program pauses, so long.
PERIOD, PAUSE_S = 5, 0.11
#: A name that would be markup, and values that are no numbers.
HOSTILE = "<img src=x onerror=\"document.title='owned'\">\u202e"
NOT_FINITE = {40: math.nan, 41: math.inf, 42: -math.inf}
#: Of the run whose FLOPs are counted: the device that it is said to have run on, and what a step is said to compute.
DEVICE, FLOPS, COUNTED_STEPS = "NVIDIA H200", 1_500_000_000_000, 40


def make_runs(folder: Path) -> Path:
    """``runs/slow``, ``runs/bare``, ``runs/counted`` and ``empty`` below a folder with their registry. Each life is a process, as lives are."""
    make_stream(folder)
    for word in ("fails", "ends"):
        command = [sys.executable, "-m", "tests.view.run_exhibit", str(folder), word]
        subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=word == "ends")
    (folder / "empty").mkdir()
    for note in (folder / "runs/counted/steps").glob("*.flops.json"):
        note.write_bytes(msgspec.json.encode(FlopNote(DEVICE)))
    return folder


def train_barely(stream: Stream, out: Path) -> None:
    """A run with rows switched off."""
    run, state = make(stream, out, Policy(stop_at=6)), start()
    for _, batch in run.steps(state, record=False):
        loss, change = update(run, state, batch)
        state["weights"] += change
        run.report(loss=loss)


class Counts:
    """Of a model that costs the same in every step."""

    def step(self, batch: object) -> StepFlops:
        """Half of it is thrown away."""
        return StepFlops({"bfloat16": FLOPS}, {"bfloat16": 2 * FLOPS}, {"bfloat16": FLOPS}, 8, 8)


def train_counted(stream: Stream, out: Path) -> None:
    """A run with FLOPs, on a device that this machine need not have."""
    run, state = make(stream, out, Policy(stop_at=COUNTED_STEPS)), start()
    for step, batch in run.steps(state, flops=Counts()):
        with run.span("forward"):
            _, change = update(run, state, batch)
            Clock().pause(0.006)
        state["weights"] += change
        run.report(loss=3.0 - step / COUNTED_STEPS)


def train_slowly(stream: Stream, out: Path, fails_at: int | None = None) -> None:
    """A life: spans of a model, an evaluation, scalars of all kinds, and the pause in the program's own code."""
    run, state = make(stream, out, Policy(save_every=SAVE_EVERY, stop_at=STEPS)), start()
    noise = np.random.default_rng(7)
    for step, batch in run.steps(state):
        with run.span("forward"):
            _, change = update(run, state, batch)
            Clock().pause(0.0015)
        with run.span("backward"):
            Clock().pause(0.0025)
        state["weights"] += change
        if step % PERIOD == PERIOD - 1:
            Clock().pause(PAUSE_S)
        if step == fails_at:
            raise Fault("a planted failure")
        run.log(lr=3e-4 * min(1.0, (step + 1) / 40), **{HOSTILE: NOT_FINITE.get(step, noise.normal())})
        run.report(loss=1.9 + 4 * math.exp(-step / 60) + 0.05 * noise.normal())


if __name__ == "__main__":
    place, life = Path(sys.argv[1]), sys.argv[2]
    train_slowly(Stream(place), place / "runs" / "slow", FAILS_AT if life == "fails" else None)
    if life == "ends":
        train_barely(Stream(place), place / "runs" / "bare")
        train_counted(Stream(place), place / "runs" / "counted")
