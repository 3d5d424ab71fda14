"""Pictures of WebDataset archives as records, shuffled, decoded and hashed, against reading the archives in order by hand.

The reference is what a careful person writes without a library: `tarfile` from front to back, Pillow, numpy. It shuffles
nothing and checks nothing; we draw samples from anywhere, check every block on first touch and hash every value. Besides, how
much of the time is ours: the same batches without decoding.
"""

import io
import json
import tarfile
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import penstock as ps
from benchmarks.table import Table, best_of

SHARDS, PER_SHARD, PIXELS = 4, 250, 128
BATCH = 50
ROWS = SHARDS * PER_SHARD


def decode(row: dict[str, Any]) -> dict[str, Any]:
    """The picture as an array."""
    return {"image": np.asarray(Image.open(io.BytesIO(row["jpg"]))), "label": row["json"]["label"]}


def run() -> Table:
    """Measure in one run, warm page cache, all pictures once each."""
    table = Table(
        f"{ROWS:,} JPEG pictures of {PIXELS} x {PIXELS}, shuffled, are as fast as tarfile + Pillow in order",
        "rows/s",
        smaller_is_better=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        paths = write_archives(place)
        registry = ps.Registry(place / "registry")
        registry.register("pictures", place / "pictures")
        table.add("tarfile + Pillow, in order", ROWS / best_of(lambda: read_by_hand(paths), rounds=3))
        for threads in (0, 2):
            seconds = best_of(partial(read, registry, [ps.Map(decode)], threads), rounds=3)
            table.add(f"records, decoded, {threads} threads", ROWS / seconds)
        table.add("records, bytes, 0 threads", ROWS / best_of(lambda: read(registry, [], 0), rounds=3))
    return table


def read(registry: ps.Registry, stages: list[ps.Map], threads: int) -> None:
    """One epoch."""
    recipe = ps.Recipe(sources=(ps.Source("pictures@1", epochs=1),), batch=BATCH, stages=tuple(stages))
    with ps.open(recipe, registry=registry, threads=threads) as feed:
        assert sum(len(batch["valid"]) for batch in feed) == ROWS


def read_by_hand(paths: list[Path]) -> None:
    """From front to back."""
    count = 0
    for path in paths:
        rows: list[Any] = []
        with tarfile.open(path) as archive:
            for member in archive:
                data = archive.extractfile(member)
                assert data is not None
                if member.name.endswith(".jpg"):
                    rows.append(np.asarray(Image.open(io.BytesIO(data.read()))))
                    count += 1
                else:
                    json.loads(data.read())
                if len(rows) == BATCH:
                    np.stack(rows)
                    rows.clear()
    assert count == ROWS


def write_archives(place: Path) -> list[Path]:
    """Pictures that JPEG makes a few kilobytes of."""
    draws = np.random.default_rng(1)
    ramp = np.linspace(0, 255, PIXELS)
    (place / "pictures").mkdir()
    paths = [place / "pictures" / f"{number}.tar" for number in range(SHARDS)]
    for number, path in enumerate(paths):
        with tarfile.open(path, "w") as archive:
            for at in range(PER_SHARD):
                noise = draws.normal(0, 20, (PIXELS, PIXELS, 3))
                pixels = np.clip(ramp[:, None, None] + noise, 0, 255).astype(np.uint8)
                stream = io.BytesIO()
                Image.fromarray(pixels).save(stream, "jpeg", quality=80)
                about = json.dumps({"label": at % 10}).encode()
                for suffix, data in (("jpg", stream.getvalue()), ("json", about)):
                    member = tarfile.TarInfo(f"{number}{at:05}.{suffix}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    return paths
