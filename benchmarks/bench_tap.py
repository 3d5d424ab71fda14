"""What it costs to be looked at: a loop over a feed whose tap is off, on, and on while another process looks a thousand times a second.

A step of the loop is about a millisecond of arithmetic, less than most training steps, so a share that is small here is smaller
there. Counted is the processor time of the loop's own thread, in many short rounds that take turns; the best of each counts. The last row
calls ``penstock.tap`` at every step with a budget that is spent; what a megabyte costs when the budget allows it, once a second, is its note.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import penstock as ps
from benchmarks.table import Table, best_of
from penstock.data.showing import Ring
from penstock.data.tapping import Tap

LENGTH, BATCH, ROWS = 2048, 8, 20_000
STEPS, ROUNDS = 60, 60
_LOOK = """
import sys
import time
from pathlib import Path
from penstock.view.tap.reading import read_tap
print("looking", flush=True)
while read_tap(Path(sys.argv[1])) is not None:
    time.sleep(0.001)
"""


def run() -> Table:
    """Measure in one run, in alternating rounds; the best of each."""
    table = Table("a loop that can be looked at is as fast as one that cannot, within 1 %", "µs per step")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tokens = np.random.default_rng(3).integers(0, 50_000, (ROWS, LENGTH), dtype=np.uint16)
        np.save(place / "rows.npy", tokens)
        registry = ps.Registry(place / "registry")
        registry.register("rows", place / "rows.npy")
        recipe = ps.Recipe(sources=[ps.Source("rows@1")], batch=BATCH)
        feeds = {
            name: ps.open(recipe, registry=registry, threads=1)
            for name in ("no tap", "feed published", "published and looked at")
        }
        feeds["feed published"].publish(place / "own.tap")
        watched = feeds["published and looked at"].publish(place / "watched.tap")
        looker = subprocess.Popen(
            [sys.executable, "-c", _LOOK, str(watched)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert looker.stdout is not None
        looker.stdout.readline()
        steps: dict[str, Callable[[], object]] = {name: feed.__next__ for name, feed in feeds.items()}
        ring = Ring(place / "loop.ring", bytes_per_s=1)
        shown = {"input_ids": np.zeros((128, 1024), np.int64)}
        plain = feeds["no tap"]
        ring.show(shown)
        steps["arrays shown at every step, budget spent"] = lambda: (next(plain), ring.show(shown, 0))
        best = dict.fromkeys(steps, float("inf"))
        for _ in range(ROUNDS):
            for name, step in steps.items():
                looker.send_signal(signal.SIGCONT if "looked" in name else signal.SIGSTOP)
                best[name] = min(best[name], per_step(step))
        for name, value in best.items():
            table.add(name, value * 1e6)
        for feed in feeds.values():
            feed.close()
        looker.send_signal(signal.SIGCONT)
        looker.wait(timeout=60)
        ring.close()
        allowed = Ring(place / "allowed.ring", bytes_per_s=1 << 40)
        megabyte_s = best_of(lambda: allowed.show(shown))
        allowed.close()
        table.rows[3].note = f"a megabyte {megabyte_s * 1e3:.2f} ms, {megabyte_s:.2%} of a second"
        table.rows[1].note = f"showing alone {alone(place, registry, recipe) * 1e6:.2f} µs"
    return table


def per_step(step: Callable[[], object]) -> float:
    """Processor seconds of a step of the loop."""
    numbers = np.arange(200_000, dtype=np.float64)
    begun = time.thread_time()
    for _ in range(STEPS):
        step()
        # Elementwise, so that no library spreads it over cores.
        np.sqrt(numbers).sum()
        np.sqrt(numbers).sum()
    return (time.thread_time() - begun) / STEPS


def alone(place: Path, registry: ps.Registry, recipe: ps.Recipe) -> float:
    """Seconds of one showing."""
    with ps.open(recipe, registry=registry, threads=0) as feed:
        tap = Tap(place / "alone.tap", feed.plan, feed.lane)
        digest = next(feed).digest
        begun = time.perf_counter()
        for step in range(20_000):
            tap.show(step, digest)
        took = (time.perf_counter() - begun) / 20_000
        tap.close()
    return took
