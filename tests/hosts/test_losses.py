"""Hosts that are lost with everything on them, and started again by the same command (H2, H6)."""

from pathlib import Path

from tests.hosts.job_of_hosts import job_of_hosts, until


def test_every_first_host_lost_in_turn_and_started_again_the_run_ends_well(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 4) as job:
        job.start()
        life = job.await_life(0)
        for index in range(4):
            job.lose(index)
            job.start(index)
            life = job.await_life(life + 1)
        job.finish()
        assert job.codes() == [0, 0, 0, 0]
        job.assert_nothing_left()


def test_of_two_hosts_the_second_may_be_lost_and_come_again(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 2) as job:
        job.start()
        job.await_life(0)
        job.lose(1)
        until(lambda: job.states(0) == ["here", "expired"], job.account, 5.0)
        assert job.launchers[0].poll() is None
        job.start(1)
        assert job.await_life(1) == 1
        job.finish()
        assert job.codes() == [0, 0]
        job.assert_nothing_left()


def test_of_two_hosts_the_loss_of_the_first_ends_the_second_by_its_lease(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 2, options=("--lease", "2s", "--host-wait", "2s")) as job:
        job.start()
        job.await_life(0)
        job.lose(0)
        until(lambda: not job.rank_pids(1)[1], job.account, 2.5)
        assert 0 not in job.codes(1)
        job.assert_nothing_left(1)
