"""Random rows of raw JSON lines, against a reader that knows the offsets already and parses in Python.

The reference is what a careful person writes by hand: a numpy memmap, a table of offsets, `json.loads` per row. It checks
nothing; we check every block on first touch, which is part of the time.
"""

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Table, best_of
from penstock.registry import Registry, Version

ROWS = 200_000
TAKEN = 100_000
SHARDS = 4


def run() -> Table:
    """Measure in one run, warm page cache, the same rows for all."""
    table = Table(
        f"take of {TAKEN:,} random rows of jsonl is at least as fast as memmap + json.loads",
        "rows/s",
        smaller_is_better=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        paths = write_rows(place)
        version = Registry(place / "registry").register("web", paths)
        chosen = np.random.default_rng(7).permutation(ROWS)[:TAKEN]
        by_hand = ByHand(paths)
        table.add(
            "numpy memmap, offsets known, json.loads", TAKEN / best_of(lambda: by_hand.take(chosen), rounds=3)
        )
        table.add(
            "penstock, first touch checked", TAKEN / best_of(lambda: fresh(version).take(chosen), rounds=3)
        )
        table.add("penstock, again", TAKEN / best_of(lambda: version.take(chosen), rounds=3))
        assert version.take(chosen[:100]) == by_hand.take(chosen[:100])
    return table


def fresh(version: Version) -> Version:
    """The same version without anything opened or checked yet."""
    return Version(
        record=version.record, manifest=version.manifest, registry=version._registry, roots=version.roots
    )


def write_rows(place: Path) -> list[Path]:
    """Documents of a few hundred bytes to a few kilobytes."""
    draw = random.Random(7)
    words = ["the", "water", "pressure", "turbine", "of", "a", "gradient", "and", "batch", "data"]
    paths = [place / f"web-{number}.jsonl" for number in range(SHARDS)]
    for number, path in enumerate(paths):
        with path.open("w") as file:
            for row in range(ROWS // SHARDS):
                text = " ".join(draw.choices(words, k=draw.randint(40, 300)))
                file.write(
                    json.dumps({"id": number * ROWS // SHARDS + row, "text": text, "lang": "en"}) + "\n"
                )
    return paths


class ByHand:
    """The reference reader."""

    def __init__(self, paths: list[Path]) -> None:
        self.maps = [np.memmap(path, dtype=np.uint8, mode="r") for path in paths]
        self.ends = [np.flatnonzero(content == ord("\n")) for content in self.maps]

    def take(self, rows: np.ndarray) -> list[dict[str, Any]]:
        """Row by row, as the interpreter goes."""
        per_shard = ROWS // SHARDS
        taken = []
        for row in rows.tolist():
            shard, at = divmod(row, per_shard)
            ends = self.ends[shard]
            start = ends[at - 1] + 1 if at else 0
            taken.append(json.loads(self.maps[shard][start : ends[at]].tobytes()))
        return taken
