"""Jobs that are gone when their test is over."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.process import Role
from tests.process import jobs
from tests.process.jobs import Running


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


@pytest.fixture
def run_roles(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts jobs of several roles, each in a home of its own."""
    started: list[Running] = []

    def begin(*roles: Role) -> Running:
        started.append(jobs.start_roles(tmp_path / f"roles-{len(started)}", *roles))
        return started[-1]

    yield begin
    for running in started:
        jobs.end(running)
