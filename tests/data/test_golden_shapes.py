"""D1 for ever: golden batches of rows that change their length, of rows of one sample, and of truncated samples.

``tests/golden/shapes-1`` holds the digests of the first steps over the raw files of ``tests/golden/feed-1``. They are never edited; a
change of order on purpose gets a number of its own and a rule that keeps old streams.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from tests.data.digests import first_digests

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
RAW = GOLDEN / "feed-1"
STEPS = 16
LENGTHS = [(0, 32), (5, 48), (7, 20), (12, 64)]

SHAPES: dict[str, list[Any]] = {
    "concat": [ps.Pack(LENGTHS)],
    "fit": [ps.Pack(LENGTHS, "fit", pad=7)],
    "single": [ps.Truncate(40), ps.Pad(40, token=9)],
    "end": [ps.Truncate(24, keep="end"), ps.Pack([(0, 32), (6, 16)])],
}


def shape_digests(registry: ps.Registry, name: str, shuffle: Any, *, lanes: int = 1) -> list[str]:
    """The digests of the first steps under a shape."""
    recipe = ps.Recipe(
        sources=[ps.Source("web@1", weight=0.6), ps.Source("code@1", weight=0.4)],
        batch=[(0, 8), (6, 16)],
        seed=20240607,
        stages=[ps.Tokenize(str(RAW / "tokenizer.json")), *SHAPES[name]],
        shuffle=shuffle,
    )
    return first_digests(recipe, registry, STEPS, lanes=lanes)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> ps.Registry:
    """The golden files, registered anew."""
    new_registry = ps.Registry(tmp_path_factory.mktemp("shapes") / "registry")
    for name in ("web", "code"):
        new_registry.register(name, RAW / "raw" / f"{name}.jsonl")
    return new_registry


@pytest.mark.parametrize("shuffle", ["full", "local", "none"])
@pytest.mark.parametrize("name", list(SHAPES))
def test_golden_shapes_stay_what_they_are(registry: ps.Registry, name: str, shuffle: str) -> None:
    expected = json.loads((GOLDEN / "shapes-1" / "digests.json").read_text())[name][shuffle]
    assert shape_digests(registry, name, shuffle) == expected
    assert shape_digests(registry, name, shuffle, lanes=4) == expected
