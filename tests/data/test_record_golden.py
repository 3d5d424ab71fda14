"""Golden records: whoever changes their order, their digest or what random maps draw notices here.

``tests/golden/records-1`` holds raw files, a recipe, and the digests of its first 12 steps under each shuffle. They are never
edited. A change on purpose gets a number of its own (``records-2``) and a rule that keeps old streams.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from tests.data.digests import first_digests

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "records-1"
STEPS = 12


def golden_digests(registry: ps.Registry, shuffle: Any, *, lanes: int = 1) -> list[str]:
    """The digests of the first steps of the golden recipe."""
    recipe = dataclasses.replace(ps.Recipe.load(GOLDEN / "recipe.toml"), shuffle=shuffle)
    return first_digests(recipe, registry, STEPS, lanes=lanes)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> ps.Registry:
    """The golden files, registered anew."""
    new_registry = ps.Registry(tmp_path_factory.mktemp("golden") / "registry")
    for path in sorted((GOLDEN / "raw").iterdir()):
        new_registry.register(path.stem, path)
    return new_registry


@pytest.mark.parametrize("shuffle", ["full", "local", "none"])
def test_golden_records_stay_what_they_are(registry: ps.Registry, shuffle: str) -> None:
    expected = json.loads((GOLDEN / "digests.json").read_text())
    assert golden_digests(registry, shuffle) == expected[shuffle]
    assert golden_digests(registry, shuffle, lanes=4) == expected[shuffle]


def test_golden_origins_and_draws_stay_what_they_are(registry: ps.Registry) -> None:
    """Digests say that something changed; the first rows say what."""
    batch = ps.batch_at(ps.Recipe.load(GOLDEN / "recipe.toml"), step=0, registry=registry)
    rows = [
        [batch.origin(row)[0].source, batch.origin(row)[0].sample, batch["bits"][row]] for row in range(12)
    ]
    assert rows == json.loads((GOLDEN / "digests.json").read_text())["first rows"]
