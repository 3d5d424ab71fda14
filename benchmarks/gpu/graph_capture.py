"""CUDA graphs that a program captures while Penstock works beside it: the loader, saves, marks and looks must not end a capture.

A capture in the default mode fails as soon as any thread waits for the device or asks it. First a run that saves every ten steps, then an observed
loop that captures its own model on the stream that it trains on.
Run: ``python -m benchmarks.gpu.graph_capture OUT.json``.
"""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import penstock as ps
import penstock.torch
from benchmarks.gpu.loop import SIZES, Size, Training, _recipe
from penstock.run import Policy

STEPS, SAVE_EVERY = 50, 10
#: Seconds that a capture lasts: longer than any pause between looks.
CAPTURE_S = 0.3


def capture(work: Callable[[], object], stream: torch.cuda.Stream | None = None) -> None:
    """Capture something, slowly, and execute it."""
    graph, values = torch.cuda.CUDAGraph(), torch.ones(1024, device="cuda")
    with torch.cuda.graph(graph, stream=stream):
        work()
        for _ in range(100):
            values = values * 1.0001
        time.sleep(CAPTURE_S)
    graph.replay()


def beside_saves(folder: Path) -> int:
    """A run with a loader, marks and saves; how many graphs were captured meanwhile."""
    usual = SIZES["60 ms"]
    size = Size(usual.width, usual.layers, usual.rows, STEPS + 10, SAVE_EVERY)
    recipe, registry = _recipe(folder, size)
    training, captured = Training(size), 0
    policy = Policy(save_every=SAVE_EVERY, keep=ps.Keep(last=1), stop_at=STEPS)
    run = ps.Run(folder / "run", recipe=recipe, registry=registry, policy=policy, seed=1)
    state = penstock.torch.state(training.model, training.optimizer)
    with contextlib.closing(run.steps(state, device="cuda")) as steps:
        for step, batch in steps:
            run.report(loss=training.step(batch["tokens"]), tokens=batch["tokens"].numel())
            if step % 3 == 0:
                capture(lambda: None)
                captured += 1
    return captured


def on_its_own_stream(folder: Path) -> int:
    """An observed loop whose stream is captured, with the model inside; how many graphs were captured."""
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows, stream, captured = torch.randn(64, 512, device="cuda"), torch.cuda.Stream(), 0
    with torch.cuda.stream(stream), penstock.torch.observed(model, optimizer, into=folder / "own") as seen:
        for step in range(STEPS):
            loss = model(rows).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            if step % 10 == 5:
                torch.cuda.synchronize()
                capture(lambda: model(rows), stream)
                captured += 1
            seen.step(loss=loss)
    return captured


def main() -> None:
    """Both; a capture that fails raises."""
    with tempfile.TemporaryDirectory() as folder:
        captured = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "graphs captured beside a run with saves": beside_saves(Path(folder)),
            "graphs captured on the stream of an observed loop": on_its_own_stream(Path(folder)),
        }
    print(json.dumps(captured), flush=True)
    Path(sys.argv[1]).write_text(json.dumps(captured, indent=2) + "\n")


if __name__ == "__main__":
    main()
