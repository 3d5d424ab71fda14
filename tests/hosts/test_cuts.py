"""Hosts that are cut off: until a lease ends nothing is killed, and then exactly what it held."""

import time
from pathlib import Path

import pytest

from tests.hosts.job_of_hosts import job_of_hosts, until


def test_a_host_cut_off_for_less_than_its_lease_loses_nothing(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3, options=("--lease", "4s")) as job:
        job.start()
        job.await_life(0)
        until(lambda: job.leader(0) == 0, lambda: job.ask(0, "hosts"))
        before = job.rank_pids()
        job.host(2).cut()
        until(lambda: job.states(0) == ["here", "here", "unheard"], job.account, 3.0)
        job.host(2).join()
        until(lambda: job.states(0) == ["here", "here", "here"], job.account)
        assert job.rank_pids() == before
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()


def test_a_host_cut_off_beyond_its_lease_ends_its_ranks_by_then_and_all_begin_anew_when_it_is_back(
    tmp_path: Path,
) -> None:
    with job_of_hosts(tmp_path, 3) as job:
        job.start()
        job.await_life(0)
        others = job.rank_pids(0, 1)
        job.host(2).cut()
        begun = time.monotonic()
        until(lambda: not job.rank_pids(2)[2], job.account, 4.0)
        assert time.monotonic() - begun < 2.2
        until(lambda: job.states(0) == ["here", "here", "expired"], job.account, 5.0)
        # They are not dead of it: they wait, or run a life that is ended because of the loss.
        until(lambda: job.rank_pids(0, 1) != others, job.account, 5.0)
        assert job.lives() == [0, 0, 0]
        job.host(2).join()
        assert job.await_life(1) == 1
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()


@pytest.mark.parametrize("hosts", [3, 4])
def test_the_leader_cut_off_is_succeeded_in_seconds_and_no_rank_ends(tmp_path: Path, hosts: int) -> None:
    with job_of_hosts(tmp_path, hosts, options=("--lease", "8s")) as job:
        job.start()
        job.await_life(0)
        until(lambda: job.leader(1) is not None, lambda: job.ask(1, "hosts"))
        before, leader = job.rank_pids(), job.leader(1)
        assert leader is not None
        other = (leader + 1) % hosts
        job.host(leader).cut()
        until(lambda: job.leader(other) not in (leader, None), job.account, 4.0)
        job.host(leader).join()
        until(lambda: set(job.states(other)) == {"here"}, job.account)
        until(lambda: job.leader(leader) == job.leader(other), job.account)
        assert job.rank_pids() == before
        job.finish()
        assert job.codes() == [0] * hosts
        job.assert_nothing_left()


def test_a_host_that_hears_nothing_for_a_while_loses_nothing(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3, options=("--lease", "6s")) as job:
        job.start()
        job.await_life(0)
        before = job.rank_pids()
        job.host(2).deafen()
        until(lambda: "unheard" in job.states(0), job.account, 4.0)
        job.host(2).hear()
        until(lambda: job.states(0) == ["here", "here", "here"], job.account)
        assert job.rank_pids() == before
        job.finish()
        assert job.codes() == [0, 0, 0]


@pytest.mark.parametrize("way", ["both ways", "one way"])
def test_two_of_three_voters_cut_off_freeze_the_third_and_after_their_return_all_go_on(
    tmp_path: Path, way: str
) -> None:
    """Goal: no majority, no decision; H2 and H3. Method: two voters lose their cables, or hear nothing and are heard, past the lease."""
    with job_of_hosts(tmp_path, 3, options=("--lease", "4s")) as job:
        job.start()
        job.await_life(0)
        for index in (1, 2):
            job.host(index).cut() if way == "both ways" else job.host(index).deafen()
        until(lambda: (job.ask(0, "hosts") or [{}])[0].get("frozen") == "1 of 3 voters", job.account, 8.0)
        until(lambda: not any(job.rank_pids().values()), job.account, 8.0)
        for index in (1, 2):
            job.host(index).join() if way == "both ways" else job.host(index).hear()
        assert job.await_life(1) == 1
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()
