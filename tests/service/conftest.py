"""A corpus that the tests of this folder share, and a recipe file that server processes read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.corpus import Corpus, some_documents

RECIPE = """
seed = 5
batch = [[0, 24], [150, 48]]
weights = [[0, {web = 0.6, code = 0.4}], [40, {web = 0.1, code = 0.9}]]
[[sources]]
name = "web@1"
[[sources.stages]]
kind = "filter"
expression = "lang == 'en'"
[[sources]]
name = "code@1"
[[stages]]
kind = "tokenize"
tokenizer = "tokenizer.json"
[[stages]]
kind = "pack"
length = [[0, 32], [30, 64]]
policy = "fit"
"""


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Two sources, and ``recipe.toml`` over both with schedules of everything."""
    new_corpus = Corpus(tmp_path_factory.mktemp("service"))
    new_corpus.add("web", some_documents(300, longest=60, seed=1), shards=3)
    new_corpus.add("code", some_documents(80, longest=200, seed=2))
    (new_corpus.folder / "recipe.toml").write_text(RECIPE)
    return new_corpus


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where servers of the tests, and their clients, keep tokens."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("home")
        patch.setenv("PENSTOCK_HOME", str(place))
        yield place
