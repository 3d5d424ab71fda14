"""Shuffled records of ordinary parquet and Arrow files, through row copies and without, and what they take of memory and disk.

48 files with one row group (or record batch) of 60,000 rows each, as engines write them. Every reader is a process of its own; rows
per second are counted after its first batch, memory is the most that the process ever held (VmHWM). Copies are made when the
first feed opens; the note says how long that took and how many bytes they are.
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from benchmarks.table import Table

FILES, ROWS, BATCH = 48, 60_000, 32
SECONDS = 8.0


def run() -> Table:
    """Measure each reader once, in a fresh process."""
    table = Table(
        f"shuffled rows of {FILES} parquet files, one row group of {ROWS:,} rows each: 5,000 rows/s within 400 MB",
        "rows/s",
        smaller_is_better=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_files(place)
        registry = ps.Registry(place / "registry")
        for name in ("parquet", "arrow"):
            registry.register(name, place / name)
        for name in ("parquet", "arrow"):
            add(table, place, f"{name}, shuffled, without copies", name, "full", "never")
            add(table, place, f"{name}, shuffled, copies made now", name, "full", "always")
            add(table, place, f"{name}, shuffled, copies there", name, "full", "always")
            add(table, place, f"{name}, local shuffle, copies there", name, "local", "always")
            add(table, place, f"{name}, in order, without copies", name, "none", "never")
    return table


def add(table: Table, place: Path, what: str, name: str, shuffle: str, copies: str) -> None:
    """One reader in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_row_copies", str(place), name, shuffle, copies]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rate, opened, first, memory = map(float, done.stdout.split())
    raw = sum(path.stat().st_size for path in (place / name).iterdir())
    derived = sum(path.stat().st_size for path in (place / "registry" / "derived").glob("*"))
    note = f"opened in {opened:.1f} s, first batch {first:.2f} s later, peak {memory / 1e6:.0f} MB"
    if "now" in what:
        note += f", copies {derived / 1e6:.0f} MB in all (files {raw / 1e6:.0f} MB)"
    table.add(what, rate, note)


def read(place: str, name: str, shuffle: str, copies: str) -> None:
    """The child: rows per second, seconds to open and to the first batch, peak bytes."""
    registry = ps.Registry(Path(place) / "registry")
    recipe = ps.Recipe(sources=[ps.Source(f"{name}@1")], batch=BATCH, shuffle=shuffle)  # type: ignore[arg-type]
    begun = time.perf_counter()
    with ps.open(recipe, registry=registry, threads=2, copies=copies) as feed:  # type: ignore[arg-type]
        opened = time.perf_counter()
        next(feed)
        first, rows = time.perf_counter(), 0
        while (passed := time.perf_counter() - first) < SECONDS:
            rows += len(next(feed)["valid"])
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) << 10
    print(rows / passed, opened - begun, first - opened, peak)


def write_files(place: Path) -> None:
    """Text, numbers and lists; the rows of every file are its own."""
    draw = random.Random(1)
    words = [f"w{number}" for number in range(5000)]
    texts = [" ".join(draw.choices(words, k=draw.randint(20, 120))) for _ in range(ROWS)]
    lists = [[1, 2, 3][: number % 4] for number in range(ROWS)]
    scores = np.random.default_rng(1)
    (place / "parquet").mkdir()
    (place / "arrow").mkdir()
    for file in range(FILES):
        turn = file * 1237 % ROWS
        table = pa.table(
            {
                "id": np.arange(ROWS) + file * ROWS,
                "text": texts[turn:] + texts[:turn],
                "score": scores.random(ROWS),
                "tags": lists,
            }
        )
        pq.write_table(table, place / "parquet" / f"{file:03}.parquet", row_group_size=ROWS)
        with pa.ipc.new_file(place / "arrow" / f"{file:03}.arrow", table.schema) as writer:
            writer.write_table(table)


if __name__ == "__main__":
    read(*sys.argv[1:])
