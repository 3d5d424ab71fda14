"""A real web server with a few objects, and a proxy that misbehaves before it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faulty.nginx import nginx
from tests.faulty.proxy import Proxy


@pytest.fixture(scope="session")
def web_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the web server serves."""
    return tmp_path_factory.mktemp("web")


@pytest.fixture(scope="session")
def web(web_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A web server."""
    with nginx(web_folder, tmp_path_factory.mktemp("nginx")) as url:
        yield url


@pytest.fixture
def proxy(web: str) -> Iterator[Proxy]:
    """A proxy before the web server, without faults so far."""
    with Proxy(web) as proxy:
        yield proxy
