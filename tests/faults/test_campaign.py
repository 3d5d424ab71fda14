"""A sample of the campaign of random damages and kills; the whole is ``python -m benchmarks faults``."""

from pathlib import Path

from tests.faults.campaign import damages, kills


def test_random_damages_load_nothing_wrong_and_are_repaired(tmp_path: Path) -> None:
    """Goal: no silent wrong load, the newest whole checkpoint loads, repair brings back what is whole. Method: 60 seeded damages over all
    kinds of files, one to three at a time, compared byte by byte with the original."""
    tally = damages(60, 16, tmp_path)
    assert tally.failures == []
    assert tally.counts["fell back"] > 3
    assert tally.counts["repaired"] > 15
    assert {"in log", "in copies", "in manifests", "in data", "in pages"} <= set(tally.counts)


def test_random_kills_lose_nothing_that_was_committed(tmp_path: Path) -> None:
    """Goal: S1, S5, R1 at any moment. Method: 15 seeded kills of real processes, each run resumed until it ends."""
    tally = kills(15, 16, tmp_path)
    assert tally.failures == []
    assert tally.counts["killed"] > 5
