"""How long the first batch of raw text takes, when all of it is measured before and when only the first era is.

One file of JSON lines, registered before, of which nothing is measured. The first era has a fixed size (16 MiB), so its time does not
grow with the version, while measuring all does: a file sixteen times as large shows it.
"""

import dataclasses
import itertools
import json
import os
import random
import string
import tempfile
from functools import partial
from pathlib import Path

import penstock as ps
from benchmarks.table import Table, timed

SMALL = 128 << 20
LARGE = 2 << 30
WORDS = 30_000
TERABYTE = 1 << 40


def run() -> Table:
    """Measure in one run."""
    table = Table("the first batch takes as long as the first era, however much comes after it", "s")
    with tempfile.TemporaryDirectory(dir=os.environ.get("PENSTOCK_BENCH_DIR")) as folder:
        place = Path(folder)
        draws = random.Random(3)
        words = ["".join(draws.choices(string.ascii_lowercase, k=draws.randint(2, 11))) for _ in range(WORDS)]
        documents = some_text(draws, words)
        tokenizer = str(write_tokenizer(place / "tokenizer.json", documents))
        registry = ps.Registry(place / "registry")
        for name, size in (("small", SMALL), ("large", LARGE)):
            write_text(place / f"{name}.jsonl", documents, size)
            registry.register(name, place / f"{name}.jsonl")
        stages = (ps.Tokenize(tokenizer), ps.Pack(2048))
        small = ps.Recipe(sources=(ps.Source("small"),), batch=8, stages=stages)
        everything = timed(lambda: first_batch(small, registry))
        days = everything * TERABYTE / SMALL / 86_400
        shown = f"{SMALL >> 20:,} MiB"
        table.add(f'{shown}, measure = "all"', everything, f"a terabyte at this speed: {days:.1f} days")
        for name, size in (("small", SMALL), ("large", LARGE)):
            eras = dataclasses.replace(small, sources=(ps.Source(name),), measure="eras")
            taken = timed(partial(first_batch, eras, registry))
            table.add(
                f'{size >> 20:,} MiB, measure = "eras"', taken, "16 MiB are measured, whatever the size"
            )
    return table


def first_batch(recipe: ps.Recipe, registry: ps.Registry) -> None:
    """Open and get a batch."""
    with ps.open(recipe, registry=registry) as feed:
        next(feed)


def some_text(draws: random.Random, words: list[str]) -> list[str]:
    """Documents of a few hundred words, of which few are common and many are rare, as in languages."""
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    return [
        " ".join(draws.choices(words, cum_weights=weights, k=draws.randint(20, 900))) for _ in range(2_000)
    ]


def write_text(path: Path, documents: list[str], size: int) -> None:
    """JSON lines of so many bytes."""
    draws = random.Random(7)
    lines = [json.dumps({"text": document}) + "\n" for document in documents]
    with path.open("w") as file:
        written = 0
        while written < size:
            written += file.write(draws.choice(lines))


def write_tokenizer(path: Path, documents: list[str]) -> Path:
    """A byte-level BPE tokenizer, as those of language models are."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(documents, trainers.BpeTrainer(vocab_size=20_000, show_progress=False))
    tokenizer.save(str(path))
    return path
