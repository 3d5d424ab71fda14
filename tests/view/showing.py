"""Fixtures of the web tests: something to look at, a server that shows it, and a browser. Imported by ``conftest``."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from penstock.view.web.server import STATIC
from tests.view.browsing import Watched, chromium, watching
from tests.view.exhibit import Exhibit, make_exhibit
from tests.view.run_exhibit import make_runs
from tests.view.serving import serving


@pytest.fixture(scope="session")
def exhibit(tmp_path_factory: pytest.TempPathFactory) -> Exhibit:
    """Something of everything, made once."""
    return make_exhibit(tmp_path_factory.mktemp("exhibit"))


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    """A real Chromium."""
    with chromium(chromium_path) as browser:
        yield browser


@pytest.fixture(scope="session")
def exhibit_address(exhibit: Exhibit) -> Iterator[str]:
    """The printed address of a server that shows the exhibit."""
    assert (STATIC / "index.html").is_file(), "the bundle is not built: npm ci && npm run build   (in web/)"
    with serving(exhibit.folder) as (address, _):
        yield address


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real runs, made once."""
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def runs_address(runs_folder: Path) -> Iterator[str]:
    """The printed address of a server that shows them."""
    with serving(runs_folder) as (address, _):
        yield address


@pytest.fixture
def shown(browser: Browser, exhibit_address: str) -> Iterator[Watched]:
    """A watched page of that server."""
    with watching(browser, exhibit_address) as watched:
        yield watched


@pytest.fixture
def folder(exhibit: Exhibit) -> Path:
    """Where the exhibit is."""
    return exhibit.folder
