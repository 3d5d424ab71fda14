"""What it costs a loop to be looked at: telling which batch it has, with and without another process that looks a thousand times a second.

The reference is a step of the loop, under a millisecond of arithmetic that also empties the caches, as training does; a contender is what
is called after each step, timed alone. Medians over many steps. The ratio is how many times the call fits into the step. The last
contender is ``penstock.tap`` with a budget that is spent; its note says what a megabyte costs when the budget allows it, once a second.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import penstock as ps
from benchmarks.table import Table, best_of
from penstock.data.tap.arrays import Ring
from penstock.data.tap.feed_tap import Tap

LENGTH, BATCH, ROWS = 2048, 8, 20_000
STEPS = 2000
_LOOK = """
import sys
import time
from pathlib import Path
from penstock.view.tap.reader import read_tap
print("looking", flush=True)
while read_tap(Path(sys.argv[1])) is not None:
    time.sleep(0.001)
"""


def run() -> Table:
    """Measure in one run, step by step in turns."""
    table = Table("being looked at costs at most 1 % of a training step of 5 ms", "µs")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tokens = np.random.default_rng(3).integers(0, 50_000, (ROWS, LENGTH), dtype=np.uint16)
        np.save(place / "rows.npy", tokens)
        registry = ps.Registry(place / "registry")
        registry.register("rows", place / "rows.npy")
        recipe = ps.Recipe(sources=(ps.Source("rows@1"),), batch=BATCH)
        with ps.open(recipe, registry=registry, threads=1) as feed:
            own = Tap(place / "own.tap", feed.plan, feed.lane)
            watched = Tap(place / "watched.tap", feed.plan, feed.lane)
            ring = Ring(place / "loop.ring", bytes_per_s=1)
            megabyte = {"input_ids": np.zeros((128, 1024), np.int64)}
            ring.show(megabyte)
            looker = subprocess.Popen(
                [sys.executable, "-c", _LOOK, str(watched.path)], stdout=subprocess.PIPE
            )
            assert looker.stdout is not None
            looker.stdout.readline()
            contenders: dict[str, Callable[[ps.Batch], object]] = {
                "feed published": lambda batch: own.show(batch.step, batch.digest),
                "published and looked at": lambda batch: watched.show(batch.step, batch.digest),
                "arrays shown at every step, budget spent": lambda batch: ring.show(megabyte, batch.step),
            }
            for name, value in in_turns(feed, contenders).items():
                table.add(name, value * 1e6)
            share = max(row.value for row in table.rows[1:]) / 5e3
            table.rows[0].note = f"the dearest call is {share:.2%} of 5 ms"
            for opened in (own, watched, ring):
                opened.close()
            looker.communicate(timeout=60)
        allowed = Ring(place / "allowed.ring", bytes_per_s=1 << 40)
        allowed_s = best_of(lambda: allowed.show(megabyte))
        allowed.close()
        table.rows[3].note = f"a megabyte {allowed_s * 1e3:.2f} ms, {allowed_s:.2%} of a second"
    return table


def in_turns(feed: ps.Feed, contenders: dict[str, Callable[[ps.Batch], object]]) -> dict[str, float]:
    """The median seconds of a step, and of each call after one."""
    numbers = np.arange(200_000, dtype=np.float64)
    took: dict[str, list[float]] = {"a step of the loop": [], **{name: [] for name in contenders}}
    for _ in range(STEPS):
        for name, show in contenders.items():
            batch = next(feed)
            begun = time.perf_counter()
            # Elementwise, so that no library spreads it over cores.
            np.sqrt(numbers).sum()
            np.sqrt(numbers).sum()
            stepped = time.perf_counter()
            show(batch)
            took[name].append(time.perf_counter() - stepped)
            took["a step of the loop"].append(stepped - begun)
    return {name: statistics.median(times) for name, times in took.items()}
