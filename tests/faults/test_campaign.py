"""A sample of the campaign of random damages and kills; the whole is ``python -m benchmarks faults``."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.campaign import damages, kills

_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where that can be: every trial syncs many small files."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        yield Path(name)


def test_random_damages_load_nothing_wrong_and_are_repaired(folder: Path) -> None:
    """Goal: no silent wrong load, the newest whole checkpoint loads, repair brings back what is whole. Method: 60 seeded damages over all
    kinds of files, one to three at a time, compared byte by byte with the original."""
    tally = damages(60, 16, folder)
    assert tally.failures == []
    assert tally.trials == 60
    assert tally.counts["fell back"] > 0
    assert tally.counts["repaired"] > 15
    assert {"in log", "in copies", "in manifests", "in data", "in pages"} <= set(tally.counts)


def test_random_kills_lose_nothing_that_was_committed(folder: Path) -> None:
    """Goal: S1, S5, R1 at any moment. Method: 15 seeded kills of real processes, each run resumed until it ends; a
    process that ended before its moment came is no kill, and another one takes its place."""
    tally = kills(15, 16, folder)
    assert tally.failures == []
    assert tally.counts["killed"] == 15
    assert tally.counts["with a checkpoint"] > 0
