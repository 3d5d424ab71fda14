"""D1 for ever, golden batches: whoever changes an order, a packing or a digest notices here.

``tests/golden/feed-1`` holds raw files, a tokenizer, a recipe, and the digests of its first 20 steps under each shuffle. They
are never edited. A change of order on purpose gets a number of its own (``feed-2``) and a rule that keeps old streams.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.data.digests import first_digests

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "feed-1"
STEPS = 20


def golden_digests(registry: ps.Registry, shuffle: Any, *, lanes: int = 1) -> list[str]:
    """The digests of the first steps of the golden recipe."""
    recipe = dataclasses.replace(ps.Recipe.load(GOLDEN / "recipe.toml"), shuffle=shuffle)
    return first_digests(recipe, registry, STEPS, lanes=lanes)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> ps.Registry:
    """The golden files, registered anew."""
    new_registry = ps.Registry(tmp_path_factory.mktemp("golden") / "registry")
    for name in ("web", "code"):
        new_registry.register(name, GOLDEN / "raw" / f"{name}.jsonl")
    new_registry.register("rows", GOLDEN / "raw/rows.npy")
    return new_registry


@pytest.mark.parametrize("shuffle", ["full", "local", "none"])
def test_golden_batches_stay_what_they_are(registry: ps.Registry, shuffle: str) -> None:
    expected = json.loads((GOLDEN / "digests.json").read_text())
    assert golden_digests(registry, shuffle) == expected[shuffle]
    assert golden_digests(registry, shuffle, lanes=4) == expected[shuffle]


def test_golden_tokens_stay_what_they_are(registry: ps.Registry) -> None:
    """Digests say that something changed; the first rows, kept as numbers, say what."""
    expected = json.loads((GOLDEN / "digests.json").read_text())["first rows"]
    batch = ps.batch_at(ps.Recipe.load(GOLDEN / "recipe.toml"), step=0, registry=registry)
    assert batch["tokens"][:4].tolist() == expected
    assert batch["tokens"].dtype == np.uint16
