"""Batches onto an accelerator: does training wait for data, and are the bits on the device the recipe's?

A step of bf16 matrix products is timed three ways: with the same batch over and over (the limit: no data at all), with
`penstock.torch.loader`, and with PyTorch's DataLoader over a memmap (pinned, with and without workers). Then the tokens on
the device are held against `batch_at` on the host. Run: `python -m benchmarks.gpu.feed_to_device OUT.json`.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

import penstock as ps
from penstock.torch import loader

LENGTH, BATCH, ROWS, STEPS, WARM = 4096, 64, 100_000, 300, 50
WIDTH = 4096


class Rows(Dataset[torch.Tensor]):
    """What people write by hand: rows of a memmap."""

    def __init__(self, path: Path) -> None:
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[row].astype(np.int64))


class Step:
    """An embedding and two matrix products on as many tokens as a small model's step takes."""

    def __init__(self) -> None:
        self.table = torch.randn(65_536, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.weight = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """One step."""
        hidden = self.table[tokens[:, :512]]
        return ((hidden @ self.weight) @ self.weight).sum()


def timed(batches: Iterable[torch.Tensor], step: Step) -> dict[str, float]:
    """Milliseconds per step, and how long the loop itself waited for data."""
    waits = []
    iterator: Iterator[torch.Tensor] = iter(batches)
    begun = 0.0
    for number in range(STEPS + WARM):
        if number == WARM:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        asked = time.perf_counter()
        tokens = next(iterator)
        waits.append(time.perf_counter() - asked)
        step(tokens)
    torch.cuda.synchronize()
    per_step = (time.perf_counter() - begun) / STEPS
    steady = np.asarray(waits[WARM:]) * 1e3
    return {
        "ms_per_step": per_step * 1e3,
        "wait_p50_ms": float(np.median(steady)),
        "wait_p99_ms": float(np.percentile(steady, 99)),
    }


def main() -> None:
    """Measure and write."""
    report: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "batch": [BATCH, LENGTH],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, np.random.default_rng(1).integers(0, 65_536, (ROWS, LENGTH), dtype=np.uint16))
        registry = ps.Registry(Path(folder) / "registry")
        registry.register("rows", path)
        recipe = ps.Recipe(sources=(ps.Source("rows"),), seed=1, batch=BATCH)
        step = Step()
        same = torch.randint(0, 65_536, (BATCH, LENGTH), device="cuda")
        report["same batch (limit)"] = timed(iter(lambda: same, None), step)
        with loader(recipe, registry=registry, device="cuda", fields=("tokens",)) as feed:
            report["penstock.torch.loader"] = timed((batch["tokens"] for batch in feed), step)
        for workers in (0, 4):
            theirs = DataLoader(
                Rows(path), BATCH, sampler=RandomSampler(range(ROWS)), num_workers=workers, pin_memory=True
            )
            moved = (tokens.to("cuda", non_blocking=True) for tokens in theirs)
            report[f"DataLoader over a memmap, pinned, {workers} workers"] = timed(moved, step)
        with loader(recipe, registry=registry, device="cuda", fields=("tokens",)) as feed:
            equal = all(
                np.array_equal(
                    batch["tokens"].cpu().numpy(),
                    ps.batch_at(recipe, step=batch.step, registry=registry)["tokens"],
                )
                for batch, _ in zip(feed, range(20), strict=False)
            )
        report["20 batches on the device equal batch_at on the host"] = equal
    Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
