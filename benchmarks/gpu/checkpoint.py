"""Checkpoints of a run on one accelerator: how long is training held up, when is the state safe, how soon is it back?

A model with 17 GB of state trains; `ps.Checkpoints` saves three times while it goes on, and then loads; `dcp.async_save` does the same once, and
its cached pinned stager, which only copies, twice. Beside them stand the limits of the machine for the same bytes.
Run: `python -m benchmarks.gpu.checkpoint OUT.json --place FOLDER`, with room for four states there.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import penstock as ps
from benchmarks.gpu.gpt import LAYERS, ROWS, WIDTH, Training
from benchmarks.gpu.limits import device_to_host_s, forget_cached, read_s, write_s
from penstock.torch import state

WARM, BASE = 4, 10
#: Steps that are made while memory for the first save is prepared.
AHEAD = 40
SAVES = 3


def until(done: Callable[[], bool], training: Training, most: int = 600) -> list[float]:
    """Steps made until something is done; seconds of each."""
    steps: list[float] = []
    while not done() and len(steps) < most:
        steps.append(training.step())
    return steps


def slowdown(during: list[float], base: float) -> float:
    """Time that steps took over what they take alone."""
    return sum(during) / (base * len(during)) if during else float("nan")


def ours(training: Training, folder: Path, base: float) -> dict[str, Any]:
    """Save while training goes on, then load, and compare with a copy that was made at the last save."""
    figures: dict[str, Any] = {}
    tree = state(training.model, training.optimizer)
    with ps.Checkpoints(folder) as checkpoints:
        begun = time.perf_counter()
        checkpoints.prepare(tree)
        figures["prepare call s"] = time.perf_counter() - begun
        figures["slowdown while memory is prepared"] = slowdown(training.steps(AHEAD), base)
        blocked, durable, slow, stalls = [], [], [], []
        for step in range(SAVES):
            kept = training.copy()
            torch.cuda.synchronize()
            begun = time.perf_counter()
            pending = checkpoints.save(step, tree)
            blocked.append(time.perf_counter() - begun)
            during = until(pending.done, training)
            pending.wait()
            durable.append(pending.durable_s)
            slow.append(slowdown(during, base))
            stalls.append(during[0] - base)
        figures |= {
            "blocked first s": blocked[0],
            "blocked later s": blocked[1:],
            "first step after the call, longer by s": stalls,
            "durable s": durable,
            "slowdown until durable": slow,
        }
    return {**figures, **loaded(training, kept, folder)}


def loaded(training: Training, kept: dict[str, torch.Tensor], folder: Path) -> dict[str, Any]:
    """Load what was saved last, from the disk, as a new process would: into a state that was scribbled over."""
    training.scribble()
    forget_cached(folder)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    with ps.Checkpoints(folder) as checkpoints:
        checkpoint = checkpoints.latest()
        assert checkpoint is not None
        checkpoints.load(checkpoint, into=state(training.model, training.optimizer))
        torch.cuda.synchronize()
        took = time.perf_counter() - begun
    return {"load s": took, "bits equal": training.equals(kept)}


def theirs(training: Training, folder: Path, base: float) -> dict[str, Any]:
    """The same with `dcp.async_save` and `dcp.load`, once."""
    states = get_state_dict(training.model, training.optimizer)
    tree: dict[str, Any] = dict(zip(("model", "optimizer"), states, strict=True))
    kept = training.copy()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    future = dcp.async_save(tree, checkpoint_id=str(folder))
    assert isinstance(future, Future), "without a stager it is one"
    figures: dict[str, Any] = {"blocked first s": time.perf_counter() - begun}
    during = until(future.done, training)
    future.result()
    figures |= {
        "durable s": [time.perf_counter() - begun],
        "slowdown until durable": [slowdown(during, base)],
    }
    training.scribble()
    forget_cached(folder)
    begun = time.perf_counter()
    dcp.load(tree, checkpoint_id=str(folder))
    set_state_dict(
        training.model,
        training.optimizer,
        model_state_dict=tree["model"],
        optim_state_dict=tree["optimizer"],
    )
    torch.cuda.synchronize()
    return {**figures, "load s": time.perf_counter() - begun, "bits equal": training.equals(kept)}


def tuned(training: Training) -> dict[str, Any]:
    """What holds training up with the stager that keeps its pinned memory: the copy alone, first and again."""
    states = get_state_dict(training.model, training.optimizer)
    tree = dict(zip(("model", "optimizer"), states, strict=True))
    stager = BlockingAsyncStager(cache_staged_state_dict=True)
    took = []
    for _ in range(3):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        stager.stage(tree)
        took.append(time.perf_counter() - begun)
    return {"blocked first s": took[0], "blocked later s": took[1:]}


def limits(folder: Path, bytes_: int) -> dict[str, Any]:
    """The machine alone."""
    path = folder / "limit"
    figures: dict[str, Any] = {
        "blocked later s": [device_to_host_s(bytes_)],
        "durable s": [write_s(path, bytes_)],
    }
    forget_cached(folder)
    figures["load s"] = read_s(path)
    path.unlink()
    return figures


def shown(report: dict[str, Any]) -> str:
    """One table."""
    columns = (
        "blocked first s",
        "blocked later s",
        "durable s",
        "slowdown until durable",
        "load s",
        "bits equal",
    )
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in report["rows"].items():
        lines.append(f"| {name} | {' | '.join(_cell(row.get(column)) for column in columns)} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)


def arguments() -> argparse.Namespace:
    """What to measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--place", type=Path, help="a folder on the disk to measure")
    parser.add_argument("--alone", action="store_true", help="without peers")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--rows", type=int, default=ROWS)
    return parser.parse_args()


def main() -> None:
    """Measure and write."""
    options = arguments()
    place = Path(tempfile.mkdtemp(dir=options.place, prefix="checkpoint-"))
    distributed.init_process_group("cpu:gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        training = Training(options.width, options.layers, options.rows)
        training.steps(WARM)
        base = statistics.median(training.steps(BASE))
        bytes_ = sum(tensor.numel() * tensor.element_size() for tensor in training.tensors().values())
        report: dict[str, Any] = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cores": os.cpu_count(),
            "state bytes": bytes_,
            "step s": base,
            "rows": {"limit of the machine": limits(place, bytes_)},
        }
        for name, measure in {
            "penstock": lambda: ours(training, place / "ours", base),
            "dcp.async_save": lambda: theirs(training, place / "theirs", base),
            "dcp's cached pinned stager": lambda: tuned(training),
        }.items():
            if options.alone and name != "penstock":
                continue
            report["rows"][name] = measure()
            print(name, json.dumps(report["rows"][name]), flush=True)
            options.out.write_text(json.dumps(report, indent=1) + "\n")
            shutil.rmtree(place / "ours", ignore_errors=True)
        print(f"{bytes_ / 1e9:.1f} GB of state, a step takes {base:.3f} s\n\n{shown(report)}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
