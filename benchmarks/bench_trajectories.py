"""Shuffled trajectories of JSON lines as batches of records, against a numpy memmap with `json.loads` in the loop.

The reference is what a careful person writes by hand: the file mapped, offsets known, rows of a batch decoded by `json.loads`, numbers
stacked by numpy. It checks nothing, digests nothing and cannot resume. Beside it torchdata's StatefulDataLoader over the same
rows, which can resume. Contenders take turns; the best round of each counts.
"""

import importlib.util
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from benchmarks.table import Table, timed

ROWS, BATCH, ROUNDS = 100_000, 64, 4
NUMBERS = ("id", "return")


def run() -> Table:
    """Measure in one run, warm page cache, all rows once each."""
    table = Table(
        f"{ROWS:,} trajectories of jsonl, shuffled, as fast as memmap + json.loads",
        "rows/s",
        smaller_is_better=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        path = write_rows(place / "trajectories.jsonl")
        registry = ps.Registry(place / "registry")
        registry.register("trajectories", path)
        lines = Lines(path)
        contenders: dict[str, Callable[[], object]] = {
            "numpy memmap, offsets known, json.loads": lambda: by_hand(lines),
            **torchdata(lines),
            "records, 0 threads": lambda: read(registry, 0),
            "records, 2 threads": lambda: read(registry, 2),
            "records, 2 threads, fields = id, return": lambda: read(registry, 2, fields=NUMBERS),
        }
        rounds = [{name: timed(work) for name, work in contenders.items()} for _ in range(ROUNDS)]
    for name in contenders:
        table.add(name, ROWS / min(times[name] for times in rounds))
    return table


def read(registry: ps.Registry, threads: int, **chosen: Any) -> None:
    """One epoch."""
    source = ps.Source("trajectories@1", epochs=1)
    recipe = ps.Recipe(sources=(source,), batch=BATCH, exhaustion="pad", **chosen)
    with ps.open(recipe, registry=registry, threads=threads) as feed:
        assert sum(int(batch["valid"].sum()) for batch in feed) == ROWS


class Lines:
    """Rows of a file by number, as a dataset of torch has them."""

    def __init__(self, path: Path) -> None:
        self.data = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        self.ends = np.flatnonzero(self.data == ord("\n"))
        self.starts = np.concatenate([[0], self.ends[:-1] + 1])

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> Any:
        return json.loads(self.data[self.starts[row] : self.ends[row]].tobytes())


def stacked(rows: list[Any]) -> dict[str, Any]:
    """Rows as fields."""
    fields: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    return fields | {name: np.array(fields[name]) for name in NUMBERS}


def by_hand(lines: Lines) -> None:
    """One epoch."""
    order = np.random.default_rng(3).permutation(len(lines)).tolist()
    for first in range(0, len(order), BATCH):
        stacked([lines[row] for row in order[first : first + BATCH]])


def torchdata(lines: Lines) -> dict[str, Callable[[], object]]:
    """The peer, where it is installed."""
    if importlib.util.find_spec("torchdata") is None:
        return {}
    from torchdata.stateful_dataloader import StatefulDataLoader

    def epoch() -> None:
        loader: Iterator[Any] = iter(
            StatefulDataLoader(lines, batch_size=BATCH, shuffle=True, collate_fn=stacked)
        )
        assert sum(len(batch["id"]) for batch in loader) == ROWS

    return {"torchdata StatefulDataLoader over the same": epoch}


def write_rows(path: Path) -> Path:
    """Trajectories of some hundred bytes: numbers, text, lists and a dict."""
    draw = random.Random(1)
    with path.open("w") as file:
        for number in range(ROWS):
            steps = draw.randint(8, 24)
            row = {
                "id": number,
                "return": draw.random() * 10,
                "done": bool(number % 2),
                "policy": "ppo",
                "actions": [draw.randint(0, 17) for _ in range(steps)],
                "rewards": [round(draw.random(), 4) for _ in range(steps)],
                "info": {"seed": number * 3, "env": "Breakout"},
            }
            file.write(json.dumps(row) + "\n")
    return path
