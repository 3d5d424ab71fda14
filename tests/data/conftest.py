"""A corpus that the tests of this folder share, since measuring it takes longer than reading it."""

from pathlib import Path

import pytest

from tests.data.corpus import Corpus, some_documents


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Three sources: ``web`` of four shards, ``code`` with documents longer than rows, ``tiny`` of three samples."""
    new_corpus = Corpus(tmp_path_factory.mktemp("corpus"))
    new_corpus.add("web", some_documents(400, longest=60, seed=1), shards=4)
    new_corpus.add("code", some_documents(150, longest=200, seed=2))
    new_corpus.add("tiny", [[1, 2, 3], [], list(range(100))])
    return new_corpus


@pytest.fixture
def own(tmp_path: Path) -> Corpus:
    """An empty corpus of the test's own."""
    return Corpus(tmp_path)
