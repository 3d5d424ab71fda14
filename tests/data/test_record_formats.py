"""Every format that is not tokens is read as records: the rows of a batch are the rows of the version."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

import penstock as ps
from penstock.registry.copies.export import export_version
from tests.data.gallery import note, plain, png, rows_of

COUNT = 21
ROWS = [note(number) for number in range(COUNT)]
ARRAYS = {"obs": np.arange(COUNT * 6, dtype=np.float32).reshape(COUNT, 2, 3), "n": np.arange(COUNT)}


def write_folder(place: Path) -> None:
    """Pictures by class, as folders, with a file of attributes."""
    for number in range(COUNT):
        path = place / f"class{number % 3}" / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    lines = [{"file_name": f"class{n % 3}/{n:03}.png", "label": n % 3} for n in range(COUNT)]
    (place / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_csv(place: Path) -> None:
    with (place / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "text", "score"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(ROWS)


def write_arrow(place: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_file(place / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=8)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "files": write_folder,
    "csv": write_csv,
    "arrow": write_arrow,
    "text": lambda place: (place / "a.txt").write_text("".join(f"line {n}\n" for n in range(COUNT))),
    "jsonl": lambda place: (place / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
    "parquet": lambda place: pq.write_table(
        pa.Table.from_pylist(ROWS), place / "a.parquet", row_group_size=5
    ),
    "npz": lambda place: np.savez_compressed(place / "a.npz", **ARRAYS),
    "safetensors": lambda place: save_file(ARRAYS, place / "a.safetensors"),
}
EXPORTS = {"mds": "mds", "webdataset": "webdataset", "jsonl.zst": "jsonl"}


def registered(place: Path, name: str) -> ps.Registry:
    """A version ``a@1`` of a format."""
    registry = ps.Registry(place / "registry")
    (place / "raw").mkdir()
    if name in WRITERS:
        WRITERS[name](place / "raw")
        registry.register("a", place / "raw")
        return registry
    WRITERS["jsonl"](place / "raw")
    raw = registry.register("raw", place / "raw")
    export_version(registry, raw, name, place / "exported", name="a", rows_per_shard=8)
    return registry


@pytest.mark.parametrize("name", [*WRITERS, *EXPORTS])
def test_rows_of_batches_are_rows_of_the_version(tmp_path: Path, name: str) -> None:
    """Method: two lanes with threads, all rows once, each compared with the version's own and with its shard."""
    registry = registered(tmp_path, name)
    version = registry.resolve("a@1")
    assert version.manifest.format == EXPORTS.get(name, name)
    recipe = ps.Recipe(sources=[ps.Source("a@1", epochs=1)], batch=6, exhaustion="pad")
    seen = []
    for lane in range(2):
        with ps.open(recipe, registry=registry, lane=ps.Lane(lane, of=2), threads=2) as feed:
            for batch in feed:
                for row, values in enumerate(rows_of(batch)):
                    for origin in batch.origin(row):
                        stored = {key: plain(value) for key, value in version[origin.sample].items()}
                        expected = {key: value for key, value in stored.items() if value is not None}
                        assert values == expected | {"valid": 1}
                        assert origin.shard == version.shard_of(origin.sample)[0].name
                        seen.append(origin.sample)
    assert sorted(seen) == list(range(COUNT))


FEW_FILES = """
import resource, sys
import penstock as ps
resource.setrlimit(resource.RLIMIT_NOFILE, (240, 240))
recipe = ps.Recipe(sources=[ps.Source("many@1", epochs=2)], batch=44)
with ps.open(recipe, registry=ps.Registry(sys.argv[1]), threads=2) as feed:
    print(sum(int(batch["n"].sum()) for batch in feed))
"""


def test_more_shards_than_files_may_be_open(tmp_path: Path) -> None:
    """Goal: shards are closed again where files are few. Method: 220 shards, read at random with at most 240 open files."""
    (tmp_path / "many").mkdir()
    for number in range(220):
        (tmp_path / "many" / f"{number:03}.jsonl").write_text(f'{{"n": {number}}}\n')
    registry = ps.Registry(tmp_path / "registry")
    registry.register("many", tmp_path / "many")
    command = [sys.executable, "-c", FEW_FILES, registry.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"{2 * sum(range(220))}\n", "")
