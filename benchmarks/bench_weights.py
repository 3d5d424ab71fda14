"""How long opening takes when weights change a million times, against weights that never change.

Two sources of packed documents. A ramp whose weights change at each of a million steps is opened at its beginning, in its middle and at its
end, and gives its first batch; the same for a plain list of changes, opened where it begins. Everything that is measured once was
measured before, and the recipe is made before the clock starts.
"""

import tempfile
from pathlib import Path

import numpy as np

import penstock as ps
from benchmarks.bench_feed import write_megatron
from benchmarks.table import Table, median_of
from penstock.data.feed.feed import cursor_at
from penstock.data.plan.plan import prepare

CHANGES = 10**6
LISTED = 16_000
START, END = {"web": 0.9, "code": 0.1}, {"web": 0.1, "code": 0.9}


def run() -> Table:
    """Measure in one run."""
    table = Table("a million changes of weights open in less than 50 ms, at any step", "ms")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        registry = ps.Registry(place / "registry")
        for name in ("web", "code"):
            tokens = np.random.default_rng(3).integers(0, 50_000, 700 * 20_000, dtype=np.uint16)
            write_megatron(place / name, tokens)
            registry.register(name, place / f"{name}.bin")

        def opened(what: str, weights: object, step: int) -> None:
            sources = (ps.Source("web"), ps.Source("code"))
            recipe = ps.Recipe(sources=sources, batch=64, stages=(ps.Pack(2048),), weights=weights)  # type: ignore[arg-type]
            cursor = cursor_at(prepare(recipe, registry), step) if step else None

            def first() -> None:
                with ps.open(recipe, registry=registry, cursor=cursor, threads=0) as feed:
                    next(feed)

            table.add(f"{what}, opened at step {step:,}", median_of(first) * 1e3)

        opened("weights that stay", [(0, START)], 0)
        for shape, every in (("linear", 0), ("cosine", 0), ("steps", 1)):
            ramp = ps.Ramp(END, until=CHANGES, shape=shape, every=every)  # type: ignore[arg-type]
            for step in (0, CHANGES // 2, CHANGES - 1):
                opened(f"{shape}, {CHANGES:,} changes", [(0, START), (1, ramp)], step)
        listed = [(step, START if step % 2 else END) for step in range(LISTED)]
        opened(f"a list of {LISTED:,} changes", listed, 0)
        opened(f"a list of {LISTED:,} changes", listed, LISTED)
    return table
