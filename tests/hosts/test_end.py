"""The end of a job of many hosts: it is one, it comes from anywhere, and nothing is left."""

import os
import signal
from pathlib import Path

import pytest

from tests.hosts.job_of_hosts import job_of_hosts, until
from tests.hosts.rank_program import FAILED


@pytest.mark.parametrize("index", [0, 2])
def test_stop_on_any_host_ends_the_job_on_all(tmp_path: Path, index: int) -> None:
    with job_of_hosts(tmp_path, 3) as job:
        job.start()
        job.await_life(0)
        stopped = job.penstock(index, "stop", job.name(index))
        assert stopped.returncode == 0, stopped.stderr
        codes = job.codes()
        assert len(set(codes)) == 1, codes
        job.assert_nothing_left()


@pytest.mark.parametrize("index", [0, 2])
def test_an_interrupt_on_any_host_ends_the_job_on_all(tmp_path: Path, index: int) -> None:
    with job_of_hosts(tmp_path, 3) as job:
        job.start()
        job.await_life(0)
        os.kill(job.part(index, "launch"), signal.SIGINT)
        codes = job.codes()
        assert 0 not in codes, codes
        job.assert_nothing_left()


def test_a_rank_that_fails_without_budget_fails_the_job_on_all_hosts_with_its_cause(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3, options=("--lease", "2s", "--restarts", "0")) as job:
        job.start()
        job.await_life(0)
        (tmp_path / "fail-1").touch()
        codes = job.codes()
        assert codes == [FAILED] * 3, job.account()
        for index in range(3):
            assert "rank 1" in job.output(index), job.output(index)
        job.assert_nothing_left()


def test_a_job_that_ends_while_a_host_is_cut_off_leaves_nothing_once_the_host_is_back(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3, options=("--lease", "2s", "--host-wait", "3s")) as job:
        job.start()
        job.await_life(0)
        job.host(2).cut()
        job.penstock(0, "stop", job.name(0))
        job.codes(0, 1)
        job.assert_nothing_left(0, 1)
        assert job.codes(2) != [0]
        job.assert_nothing_left(2)


def test_hosts_that_wait_for_one_that_never_comes_say_so_and_an_interrupt_leaves_nothing(
    tmp_path: Path,
) -> None:
    with job_of_hosts(tmp_path, 3, world=2) as job:
        job.start(0, 1)
        for index in (0, 1):
            until(lambda at=index: "waits for hosts: 2 of 3" in job.output(at), job.account)  # type: ignore[misc]
        for index in (0, 1):
            os.kill(job.part(index, "launch"), signal.SIGINT)
        assert 0 not in job.codes(0, 1)
        job.assert_nothing_left(0, 1)


def test_a_host_that_never_comes_is_waited_for_as_long_as_was_said(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3, world=2, options=("--lease", "2s", "--host-wait", "1s")) as job:
        job.start(0, 1)
        assert 0 not in job.codes(0, 1, patience_s=10.0)
        assert "--host-wait" in job.output(0), job.output(0)
        job.assert_nothing_left(0, 1)


def test_stop_on_a_host_that_hears_no_leader_says_what_it_waits_for_and_ends_it(tmp_path: Path) -> None:
    """Goal: nobody wonders why a stop takes its time, and nothing of the host is left. Method: pull its cable, then stop."""
    with job_of_hosts(tmp_path, 3, options=("--lease", "6s")) as job:
        job.start()
        job.await_life(0)
        job.host(2).cut()
        stopped = job.penstock(2, "stop", job.name(2))
        assert stopped.returncode == 0, stopped.stderr
        assert (
            "hears no leader and decides nothing alone: it ends with its lease, within 6 s" in stopped.stderr
        )
        job.assert_nothing_left(2)
        job.host(2).join()
        job.finish()
