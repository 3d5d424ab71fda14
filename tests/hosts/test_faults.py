"""Faults of a job of many hosts with real processes: who is gone, and who is untouched."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hosts.job_of_hosts import job_of_hosts, until


def test_a_rank_killed_on_one_host_restarts_all_hosts_together(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3, ranks=2) as job:
        job.start()
        job.await_life(0)
        before = job.rank_pids()
        os.kill(before[1][0], signal.SIGKILL)
        assert job.await_life(1) == 1
        after = job.rank_pids()
        assert not {pid for pids in before.values() for pid in pids} & {
            pid for pids in after.values() for pid in pids
        }
        assert all(lives.read_text().split() == ["0", "1"] for lives in tmp_path.glob("lives-*"))
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()


def test_a_coordinator_killed_costs_no_rank_and_another_takes_its_place(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3, options=("--lease", "4s")) as job:
        job.start()
        job.await_life(0)
        before = job.rank_pids()
        for index in range(3):
            killed = job.part(index, "coordinator")
            os.kill(killed, signal.SIGKILL)
            until(lambda at=index, old=killed: job.parts(at, "coordinator") not in ([], [old]), job.account)  # type: ignore[misc]
            until(lambda at=index: job.states(at) == ["here"] * 3, job.account)  # type: ignore[misc]
        assert job.rank_pids() == before
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()


def test_an_agent_killed_costs_its_ranks_and_the_gang_begins_anew_on_all_hosts(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3) as job:
        job.start()
        job.await_life(0)
        os.kill(job.part(1, "agent"), signal.SIGKILL)
        assert job.await_life(1) >= 1
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()


def test_a_keeper_killed_ends_its_host_only_and_the_host_may_come_again(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3) as job:
        job.start()
        job.await_life(0)
        os.kill(job.part(1, "keeper"), signal.SIGKILL)
        assert job.codes(1) != [0]
        job.assert_nothing_left(1)
        until(lambda: job.states(0)[1] in ("expired", "left"), job.account)
        job.start(1)
        assert job.await_life(1) >= 1
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()


def test_a_pod_that_its_engine_ends_leaves_at_once_and_the_others_go_on(tmp_path: Path) -> None:
    """Goal: an eviction is no wish to stop the job. Method: SIGTERM to one launcher of three that believe to be in pods, with a lease that is
    far longer than the test waits."""
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    with job_of_hosts(tmp_path, 3, options=("--lease", "10m")) as job:
        job.start(variables=pod)
        job.await_life(0)
        os.kill(job.part(2, "launch"), signal.SIGTERM)
        assert job.codes(2) == [1]
        assert "leaves the job because of SIGTERM" in job.output(2)
        job.assert_nothing_left(2)
        until(lambda: job.states(0)[2] == "left", job.account)
        job.start(2, variables=pod)
        assert job.await_life(1) == 1
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()


def test_a_launcher_killed_ends_the_job_on_all_hosts(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3) as job:
        job.start()
        job.await_life(0)
        os.kill(job.part(1, "launch"), signal.SIGKILL)
        job.assert_nothing_left(1)
        codes = job.codes()
        assert all(code != 0 for code in codes), codes
        job.assert_nothing_left()


@pytest.mark.parametrize("parts", [("agent",), ("keeper",), ("agent", "keeper")], ids="+".join)
def test_whoever_is_stopped_past_the_lease_the_ranks_are_gone_and_the_job_goes_on(
    tmp_path: Path, parts: tuple[str, ...]
) -> None:
    with job_of_hosts(tmp_path, 3) as job:
        job.start()
        job.await_life(0)
        stopped = [job.part(1, part) for part in parts]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        if parts != ("keeper",):
            until(lambda: not job.rank_pids(1)[1], job.account, 3.0)
        until(lambda: job.lives() != [0, 0, 0] or not job.rank_pids(1)[1], job.account, 3.0)
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if not job.rank_pids(1)[1]:
            until(lambda: job.launchers[1].poll() is not None or job.lives()[1] > 0, job.account)
        if job.launchers[1].poll() is not None:
            job.assert_nothing_left(1)
            job.start(1)
        job.await_life(1)
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()
