"""One bench for all cases: its tokenizers and registries are made once."""

import pytest

from tests.view.lint.bench import Bench


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The bench."""
    return Bench(tmp_path_factory.mktemp("bench"))
