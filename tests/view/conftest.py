"""A library that the tests of this folder share, since measuring it takes longer than looking at it."""

import pytest

from tests.torch.stream import Stream, make_stream
from tests.view.library import CONVERSATIONS, HOSTILE, Library
from tests.view.showing import browser, exhibit, exhibit_address, folder, runs_address, runs_folder, shown

__all__ = ["browser", "exhibit", "exhibit_address", "folder", "runs_address", "runs_folder", "shown"]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """``texts`` that are hard to show, and ``talks``: conversations."""
    new_library = Library(tmp_path_factory.mktemp("library"))
    new_library.add_texts("texts", HOSTILE * 8)
    new_library.add("talks", CONVERSATIONS)
    return new_library


@pytest.fixture(scope="session")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """What runs train on."""
    return make_stream(tmp_path_factory.mktemp("stream"))


@pytest.fixture(scope="session")
def recipe(library: Library) -> str:
    """A recipe of texts, packed to rows with padding."""
    return library.recipe("texts@1", length=128, policy="fit", pad=4)


@pytest.fixture(scope="session")
def talks(library: Library) -> str:
    """A recipe of conversations, of which answers count."""
    return library.chat("talks@1")


@pytest.fixture
def colourless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without colours."""
    monkeypatch.setenv("NO_COLOR", "1")
