"""Chaos: O1 through kills, a gang that shrinks, a wall clock that is set and a full disk; births and deaths are those that were seen."""

from pathlib import Path

import pytest

from penstock.report.accounts.ledger import Ledger
from tests.report.ordeal import Ordeal, set_clock_and_full_disk, shrinking_gang, small_disk
from tests.report.ordeal_program import SAVE_EVERY
from tests.torch.stream import Stream, make_stream

#: Of a busy machine; the promise is measured by ``python -m benchmarks ordeal``.
NEAR_NS = 2_000_000_000


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("stream"))


def check_ordeal(ordeal: Ordeal, kills: int) -> Ledger:
    """O1 for every rank and life; every death observed, at the moment at which it was seen."""
    accounts = ordeal.ledger()
    for rank in accounts.ranks:
        assert rank.overlaps == []
        assert sum(rank.accounts.values()) == rank.wall
        for life in rank.lives:
            assert sum(life.accounts.values()) == life.wall
            assert sum(life.parts.values()) == life.accounts["train"]
            assert min(*life.accounts.values(), *life.parts.values()) >= 0
    assert ordeal.kills == kills
    deaths = [incident for incident in accounts.incidents if incident.kind == "death"]
    assert len(deaths) == kills
    assert accounts.repair()["observed"] == kills
    births, dead = ordeal.differences()
    assert len(births) == len(ordeal.seen)
    assert max(births) < NEAR_NS
    assert max(dead) < NEAR_NS
    return accounts


def test_a_gang_that_is_killed_and_shrinks_has_every_nanosecond_in_one_account(
    stream: Stream, tmp_path: Path
) -> None:
    """Goal: O1. Method: four ranks, then two on the same run; one rank of each life is killed from outside at any moment."""
    accounts = check_ordeal(shrinking_gang(stream, tmp_path, (3, 2), seed=1), 5)
    assert [len(rank.lives) for rank in accounts.ranks] == [7, 7, 4, 4]
    assert accounts.accounts["lost"] > 0
    assert max(life.lost_steps for rank in accounts.ranks for life in rank.lives) < 20 * SAVE_EVERY


def test_a_wall_clock_that_is_set_and_a_full_disk_move_nothing(stream: Stream, tmp_path: Path) -> None:
    """Goal: O1, O2, clocks. Method: one rank's wall clock goes forward and back by an hour in every life, and the run's disk is full for a while."""
    with small_disk(tmp_path / "disk") as disk:
        ordeal = set_clock_and_full_disk(stream, tmp_path, disk, 7, seed=2)
        accounts = check_ordeal(ordeal, 7)
        faults = ordeal.timeline().faults
    # An hour is in no account, and the last life, which ended in order, says that the clock was set.
    assert accounts.wall < 600e9
    assert any("the wall clock of rank 0 was set by -3600" in fault for fault in faults), faults
