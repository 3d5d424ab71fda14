"""How long opening at a far position takes, against opening at the beginning: it should not matter.

Two hundred thousand documents, packed; a fresh feed is opened from a cursor at each step and gives its first batch. Everything that
is measured once (lengths, table) was measured before. For a plan of a billion samples: `cargo run --example plan_speed`.
"""

import tempfile
from pathlib import Path

import numpy as np

import penstock as ps
from benchmarks.bench_feed import write_megatron
from benchmarks.table import Table, median_of
from penstock.data.feed.feed import cursor_at
from penstock.data.plan.plan import prepare

STEPS = (0, 10**3, 10**5, 10**7, 10**9)


def run() -> Table:
    """Measure in one run."""
    table = Table("opening at any position takes the same time (± 20 %)", "ms")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tokens = np.random.default_rng(3).integers(0, 50_000, 700 * 200_000, dtype=np.uint16)
        write_megatron(place / "docs", tokens)
        registry = ps.Registry(place / "registry")
        registry.register("docs", place / "docs.bin")
        recipe = ps.Recipe(sources=(ps.Source("docs"),), seed=1, batch=8, stages=(ps.Pack(2048),))
        plan = prepare(recipe, registry)
        for step in STEPS:
            cursor = cursor_at(plan, step)

            def first(cursor: ps.Cursor = cursor) -> None:
                with ps.open(recipe, registry=registry, cursor=cursor, threads=0) as feed:
                    next(feed)

            table.add(f"open at step {step:,} and get a batch", median_of(first) * 1e3)
    return table
