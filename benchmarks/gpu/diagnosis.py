"""What `penstock report` says on an accelerator about loops with a planted cause, and that CUDA graphs are captured beside recording.

Every loop is observed with ``penstock.torch.observed``; the first line of its report has to name the plant, and the clean loop has to have none.
Run: ``python -m benchmarks.gpu.diagnosis OUT.json``.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

import penstock.torch
from penstock.observe.steps import DEVICE, UNMEASURED, read_steps
from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of

STEPS, WARM = 300, 5
#: Kind of the cause that is expected, first where it costs enough to be named; nothing for a loop that has none.
EXPECTED = {
    "clean": "",
    "launches": "host_bound",
    "own_sleep": "own_code",
    "retries": "allocator",
    "recompiled": "compiling",
    "captured": "own_code",
    "graphed": "",
}


def wide(width: int = 8192, layers: int = 4) -> nn.Module:
    """Few kernels, each long."""
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))


def deep(width: int = 64, layers: int = 300) -> nn.Module:
    """Many kernels, each shorter than its launch."""
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))


class Loop:
    """A model, an optimizer and one batch."""

    def __init__(self, model: nn.Module, rows: int, width: int) -> None:
        self.model = model.cuda().bfloat16()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6, foreach=True)
        self.batch = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
        self.called: Callable[..., Any] = self.model

    def step(self, batch: torch.Tensor | None = None) -> torch.Tensor:
        """One step, without any wait."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.called(self.batch if batch is None else batch).float().square().mean()
        loss.backward()
        self.optimizer.step()
        return torch.as_tensor(loss)


def _clean(loop: Loop, number: int) -> torch.Tensor:
    return loop.step()


def _own_sleep(loop: Loop, number: int) -> torch.Tensor:
    loss = loop.step()
    if number % 5 == 4:
        torch.cuda.synchronize()
        time.sleep(0.1)
    return loss


def _retries(loop: Loop, number: int) -> torch.Tensor:
    # Blocks of ever other sizes, so that none of those that are kept fits.
    rows = 2048 + 512 * (number * 7 % 13)
    return loop.step(torch.randn(rows, 8192, device="cuda", dtype=torch.bfloat16))


def _recompiled(loop: Loop, number: int) -> torch.Tensor:
    return loop.step(loop.batch[: 8 * (1 + number % 60)])


def _captured(loop: Loop, number: int) -> torch.Tensor:
    """A graph of something else, captured while the loop is recorded, in the mode in which calls of other threads end a capture."""
    loss = loop.step()
    if number % 20 == 10:
        graph, source = torch.cuda.CUDAGraph(), torch.ones(1024, device="cuda")
        with torch.cuda.graph(graph):
            for _ in range(200):
                source = source * 1.0001
            time.sleep(0.2)
        graph.replay()
    return loss


PLANTS: dict[str, tuple[Callable[[], Loop], Callable[[Loop, int], torch.Tensor]]] = {
    "clean": (lambda: Loop(wide(), 4096, 8192), _clean),
    "launches": (lambda: Loop(deep(), 64, 64), _clean),
    "own_sleep": (lambda: Loop(wide(), 1024, 8192), _own_sleep),
    "retries": (lambda: Loop(wide(), 2048, 8192), _retries),
    "recompiled": (lambda: _compiled(Loop(wide(1024), 512, 1024)), _recompiled),
    "captured": (lambda: Loop(wide(), 4096, 8192), _captured),
    "graphed": (lambda: _graphed(Loop(wide(), 4096, 8192)), _clean),
}


def _compiled(loop: Loop) -> Loop:
    loop.called = torch.compile(loop.model, dynamic=False)
    return loop


def _graphed(loop: Loop) -> Loop:
    loop.called = torch.cuda.make_graphed_callables(loop.model, (loop.batch,))
    return loop


@contextmanager
def _little_memory(name: str) -> Iterator[None]:
    """So little that blocks have to be freed before others can be had."""
    if name == "retries":
        torch.cuda.set_per_process_memory_fraction(0.022)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def observe(name: str, place: Path) -> dict[str, Any]:
    """One loop, and what its report says."""
    make, work = PLANTS[name]
    torch.cuda.empty_cache()
    loop = make()
    if name != "recompiled":
        for _ in range(WARM):
            loop.step()
    with _little_memory(name), penstock.torch.observed(loop.model, loop.optimizer, into=place) as seen:
        for number in range(STEPS):
            seen.step(loss=work(loop, number))
        torch.cuda.synchronize()
        # What comes late is read.
        time.sleep(0.2)
    report = report_of(evidence_of(place))
    (rows,) = read_steps(place)
    marked = sum(bool((rows.columns[column] != UNMEASURED).any()) for column in DEVICE)
    first = report.diagnosis.first
    kinds = [cause.kind for cause in report.diagnosis.causes]
    kind = "" if first is None else first.kind
    # A retry costs some milliseconds, and there are few of them.
    is_expected = "allocator" in kinds if name == "retries" else kind == EXPECTED[name]
    return {
        "line": report.diagnosis.line,
        "kind": kind,
        "as expected": is_expected,
        "step ms": round(report.speed["p50_ns"] / 1e6, 3),
        "columns of the device": marked,
        "causes": [cause.line(report.diagnosis.wall) for cause in report.diagnosis.causes][:3],
        "device": report.breakdown["device"],
    }


def main() -> None:
    """All of them, each in a directory of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", choices=PLANTS)
    chosen = parser.parse_args()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.only or PLANTS:
            try:
                found[name] = observe(name, Path(folder) / name)
            except RuntimeError as problem:
                found[name] = {"problem": f"{type(problem).__name__}: {problem}"[:400]}
            print(name, json.dumps(found[name], ensure_ascii=False), flush=True)
    chosen.out.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
