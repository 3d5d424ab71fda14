"""A library that the tests of this folder share, since measuring it takes longer than looking at it."""

import pytest

from tests.view.library import CONVERSATIONS, HOSTILE, Library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """``texts`` that are hard to show, and ``talks``: conversations."""
    made = Library(tmp_path_factory.mktemp("library"))
    made.add_texts("texts", HOSTILE * 8)
    made.add("talks", CONVERSATIONS)
    return made
