"""The stream that tests of runs train on, and jobs that are gone when their test is over."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process import jobs
from tests.process.jobs import Running
from tests.torch.stream import Stream, make_stream


@pytest.fixture(scope="session")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("stream"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts jobs, each in a home of its own."""
    started: list[Running] = []

    def begin(*words: str, **options: object) -> Running:
        started.append(jobs.start(tmp_path / f"home-{len(started)}", *words, **options))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for running in started:
        jobs.end(running)
