"""How fast batches come, against a random numpy memmap read of whole rows: the limit of any reader without checks.

The reference copies the same number of rows of 2,048 tokens, drawn at random, out of a memmap into a batch. The feed does
that with every block checked on first touch, rows digested, and (in the packed case) documents shuffled and packed on the
fly. Each contender reads its data for a while to be warm, then is timed in turns with the reference.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

import penstock as ps
from benchmarks.table import Table

LENGTH = 2048
BATCH = 8
ROWS = 100_000
BATCHES = 4000
ROUNDS = 5


def run() -> Table:
    """Measure in one run, in alternating rounds; the best of each."""
    table = Table(
        "shuffled batches at 0.8 x (rows) and 0.4 x (packed) of a random memmap read",
        "M tokens/s",
        smaller_is_better=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tokens = np.random.default_rng(3).integers(0, 50_000, (ROWS, LENGTH), dtype=np.uint16)
        np.save(place / "rows.npy", tokens)
        write_megatron(place / "docs", tokens.reshape(-1))
        registry = ps.Registry(place / "registry")
        registry.register("rows", place / "rows.npy")
        registry.register("docs", place / "docs.bin")
        contenders: dict[str, Iterator[object]] = {
            "numpy memmap, random rows": memmap_batches(place / "rows.npy"),
            "feed, rows": open_feed(registry, "rows", ()),
            "feed, documents packed (concat)": open_feed(registry, "docs", (ps.Pack(LENGTH),)),
            "feed, documents packed (fit)": open_feed(registry, "docs", (ps.Pack(LENGTH, "fit"),)),
        }
        rates = dict.fromkeys(contenders, 0.0)
        for name, batches in contenders.items():
            first = time.perf_counter()
            next(batches)
            print(f"first batch of {name}: {(time.perf_counter() - first) * 1e3:.1f} ms")
        for _ in range(ROUNDS):
            for name, batches in contenders.items():
                rates[name] = max(rates[name], rate(partial(next, batches)))
        for name, value in rates.items():
            table.add(name, value / 1e6)
    return table


def rate(step: Callable[[], object]) -> float:
    """Tokens per second over one round."""
    begun = time.perf_counter()
    for _ in range(BATCHES):
        step()
    return BATCHES * BATCH * LENGTH / (time.perf_counter() - begun)


def memmap_batches(path: Path) -> Iterator[np.ndarray]:
    """Random rows of a memmap, copied into a batch by one call, which is the fastest way that numpy has."""
    rows = np.load(path, mmap_mode="r")
    order = np.random.default_rng(5)
    while True:
        permutation = order.permutation(len(rows))
        for first in range(0, len(rows) - BATCH, BATCH):
            yield rows[permutation[first : first + BATCH]]


def open_feed(registry: ps.Registry, name: str, stages: tuple[ps.Pack, ...]) -> Iterator[np.ndarray]:
    """The tokens of a feed over one source."""
    recipe = ps.Recipe(sources=(ps.Source(name),), seed=1, batch=BATCH, stages=stages)
    with ps.open(recipe, registry=registry) as feed:
        for batch in feed:
            yield batch["tokens"]


def write_megatron(prefix: Path, tokens: np.ndarray) -> None:
    """The same tokens as documents of random lengths."""
    from penstock.formats.contract import FieldKind
    from penstock.formats.export.megatron_writer import MegatronWriter

    draw = np.random.default_rng(9)
    cuts = np.cumsum(draw.integers(50, 1500, size=len(tokens) // 700))
    writer = MegatronWriter(prefix.parent, prefix.name, [FieldKind("tokens", "array")])
    writer.add([{"tokens": part} for part in np.split(tokens, cuts[cuts < len(tokens)])], 0)
    for staged, final in writer.finish():
        staged.rename(final)
