"""The orders of D1 as numbers, shuffling: how many shards a batch comes from, and whether every order is equally likely."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.data.corpus import Corpus

SHARDS, ROWS = 256, 40


def chi_square(counts: list[int]) -> float:
    """How far counts that should be equal are from it, in standard deviations (Wilson and Hilferty 1931)."""
    expected, freedom = sum(counts) / len(counts), len(counts) - 1
    value = sum((count - expected) ** 2 / expected for count in counts)
    return ((value / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))


def distinct_expected(rows: int) -> float:
    """Distinct shards in so many rows drawn without putting back, each equally likely."""
    missing = math.comb(SHARDS * ROWS - ROWS, rows) / math.comb(SHARDS * ROWS, rows)
    return SHARDS * (1 - missing)


@pytest.fixture(scope="module")
def many_shards(tmp_path_factory: pytest.TempPathFactory) -> ps.Registry:
    """256 array files whose rows say which file they are from."""
    folder = tmp_path_factory.mktemp("shards")
    for number in range(SHARDS):
        np.save(folder / f"{number:03d}.npy", np.full((ROWS, 4), number, dtype="u2"))
    registry = ps.Registry(tmp_path_factory.mktemp("quality") / "registry")
    registry.register("shards", folder)
    return registry


@pytest.mark.parametrize("stages", [(), (ps.Pack(4),), (ps.Pack(4, "fit"),)], ids=["rows", "concat", "fit"])
def test_a_batch_comes_from_as_many_shards_as_chance_allows(many_shards: ps.Registry, stages: Any) -> None:
    """Goal: `full` is a uniform shuffle. Method: distinct shards of 1,024 rows, over 40 batches, against the expectation."""
    recipe = ps.Recipe(sources=[ps.Source("shards@1")], batch=1024, seed=3, stages=stages)
    with ps.open(recipe, registry=many_shards) as feed:
        counts = [len(np.unique(next(feed)["tokens"])) for _ in range(40)]
    assert np.mean(counts) >= 0.99 * distinct_expected(1024)
    small = ps.Recipe(sources=[ps.Source("shards@1")], batch=64, seed=3, stages=stages)
    with ps.open(small, registry=many_shards) as feed:
        counts = [len(np.unique(next(feed)["tokens"])) for _ in range(160)]
    assert np.mean(counts) >= 0.99 * distinct_expected(64)


def orders(registry: ps.Registry, recipe: ps.Recipe, epochs: int) -> Counter[tuple[int, ...]]:
    """How often each order of an epoch came, where a step is an epoch."""
    with ps.open(recipe, registry=registry) as feed:
        return Counter(tuple(next(feed)["tokens"][:, 0].tolist()) for _ in range(epochs))


@pytest.mark.parametrize("stages", [(), (ps.Pack(2),), (ps.Pack(2, "fit"),)], ids=["rows", "concat", "fit"])
@pytest.mark.parametrize("shuffle", ["full", "local"])
def test_every_order_of_an_epoch_is_equally_likely(tmp_path: Path, stages: Any, shuffle: Any) -> None:
    """Goal: epoch orders are uniform. Method: 4,800 epochs of four rows, all 24 orders, chi-square with a fixed seed."""
    np.save(tmp_path / "four.npy", np.repeat(np.arange(4, dtype="u2"), 2).reshape(4, 2))
    registry = ps.Registry(tmp_path / "registry")
    registry.register("four", tmp_path / "four.npy")
    recipe = ps.Recipe(sources=[ps.Source("four@1")], batch=4, seed=1, stages=stages, shuffle=shuffle)
    counts = orders(registry, recipe, 4800)
    assert len(counts) == 24
    assert abs(chi_square(list(counts.values()))) < 4


def test_every_seed_is_equally_likely_to_give_an_order(tmp_path: Path) -> None:
    """The first epochs of 1,200 seeds are as uniform as 1,200 epochs of one."""
    np.save(tmp_path / "three.npy", np.arange(3, dtype="u2").reshape(3, 1))
    registry = ps.Registry(tmp_path / "registry")
    registry.register("three", tmp_path / "three.npy")
    counts = Counter[tuple[int, ...]]()
    for seed in range(600):
        recipe = ps.Recipe(sources=[ps.Source("three@1")], batch=3, seed=seed)
        counts += orders(registry, recipe, 1)
    assert len(counts) == 6
    assert abs(chi_square(list(counts.values()))) < 4


def test_documents_of_a_batch_are_spread_over_the_source(corpus: Corpus) -> None:
    """The rows of a batch of packed documents are not neighbours: their samples are spread like a uniform draw."""
    batches = corpus.read(corpus.recipe("web@1", batch=32, length=64), 30)
    samples = [o.sample for batch in batches for row in range(32) for o in batch.origin(row)]
    counts = np.bincount(np.array(samples) * 10 // len(corpus.documents["web"]), minlength=10)
    assert counts.min() > 0.7 * counts.mean()
    gaps = np.abs(np.diff(samples))
    assert np.mean(gaps) == pytest.approx(len(corpus.documents["web"]) / 3, rel=0.1)
