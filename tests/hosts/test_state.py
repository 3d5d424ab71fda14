"""Jobs with a state directory: either of two hosts may be lost, and a job that is started again continues (H2, S2)."""

import json
from pathlib import Path

from tests.hosts.job_of_hosts import JobOfHosts, job_of_hosts, until

LEASE = ("--lease", "3s", "--host-wait", "1m")


def _with_state(folder: Path) -> tuple[str, ...]:
    return (*LEASE, "--state", str(folder / "state"))


def _voters(job: JobOfHosts, index: int) -> int:
    rows = job.ask(index, "hosts")
    return len(rows[0]["voters"]) if rows and rows[0]["leader"] else 0


def test_either_of_two_hosts_may_be_lost_and_come_again(tmp_path: Path) -> None:
    """Goal: no host of two is the only one. Method: each is lost with everything on it, first the one and then the other, and started
    again by the same command; nobody stops the other, and in the end both run."""
    with job_of_hosts(tmp_path, 2, options=_with_state(tmp_path)) as job:
        job.start()
        life = job.await_life(0)
        for index in (0, 1):
            other = 1 - index
            until(lambda other=other: _voters(job, other) == 2, job.account)  # type: ignore[misc]
            job.lose(index)
            until(lambda other=other: _voters(job, other) == 1, job.account, 10.0)  # type: ignore[misc]
            job.start(index)
            life = job.await_life(life + 1)
            assert job.launchers[other].poll() is None
        job.finish()
        assert job.codes() == [0, 0]
        job.assert_nothing_left()


def test_of_two_hosts_that_are_cut_apart_one_goes_on_and_takes_the_other_back(tmp_path: Path) -> None:
    """Goal: H2. Method: a cut beyond the lease, and back; a lock per rank shows that none ran twice."""
    with job_of_hosts(tmp_path, 2, options=_with_state(tmp_path)) as job:
        job.start()
        job.await_life(0)
        job.host(1).cut()
        until(lambda: not any(job.rank_pids().values()), job.account, 15.0)
        until(lambda: sorted([_voters(job, 0), _voters(job, 1)]) in ([0, 1], [1, 1]), job.account, 10.0)
        job.host(1).join()
        assert job.await_life(1) >= 1
        job.finish()
        assert job.codes() == [0, 0]
        job.assert_nothing_left()


def test_a_second_start_beside_a_living_job_is_refused_with_the_name_of_its_host(tmp_path: Path) -> None:
    """Goal: one job in a state directory. Method: two other hosts start the same program with it, as another job."""
    options = _with_state(tmp_path)
    with job_of_hosts(tmp_path, 2, world=4, options=options) as job:
        job.start()
        job.await_life(0)
        before = job.rank_pids()
        meeting = f"{job.host(2).address}:23777"
        for index in (2, 3):
            words = job.words(index, node_rank=index - 2)
            words[words.index("--rdzv-endpoint") + 1] = meeting
            output = tmp_path / f"output-{index}"
            job.launchers[index] = job.host(index).start(words, output=output, variables=job.variables())
        assert job.codes(2, 3) == [2, 2]
        for index in (2, 3):
            assert "same state directory" in job.output(index), job.output(index)
            assert any(host.name in job.output(index) for host in job.world.hosts[:2])
        assert job.rank_pids() == before
        job.finish()
        assert job.codes(0, 1) == [0, 0]


def test_a_job_that_is_started_again_continues_its_budget_and_its_lives(tmp_path: Path) -> None:
    """Goal: S2, no number of a life comes twice. Method: a rank fails once, then all hosts are lost at once and started again; the
    second failure is one too many."""
    options = (*_with_state(tmp_path), "--restarts", "1")
    with job_of_hosts(tmp_path, 2, options=options) as job:
        job.start()
        job.await_life(0)
        (tmp_path / "fail-1").touch()
        until(
            lambda: "7" in job.output(1) or len((tmp_path / "lives-1").read_text().split()) > 1, job.account
        )
        (tmp_path / "fail-1").unlink()
        life = job.await_life(1)
        copied = tmp_path / "state" / "journal"
        until(lambda: any('\\"failed\\"' in path.read_text() for path in copied.iterdir()), job.account, 10.0)
        for index in (0, 1):
            job.lose(index)
        job.start()
        again = job.await_life(life + 1)
        assert json.loads((tmp_path / "state/alive.json").read_text())["lives"] > again
        (tmp_path / "fail-0").touch()
        codes = job.codes()
        assert codes == [7, 7], job.account()
        assert "all 1 restarts are spent" in job.output(0), job.output(0)
        job.assert_nothing_left()


def test_a_state_directory_that_not_all_hosts_see_is_refused_where_somebody_asked_for_it(
    tmp_path: Path,
) -> None:
    """Goal: a typed refusal that names host and directory. Method: a directory below /tmp, which every host has for itself."""
    options = (*LEASE, "--state", "/tmp/state")
    with job_of_hosts(tmp_path, 2, options=options) as job:
        job.start()
        assert job.codes() == [2, 2]
        for index in (0, 1):
            said = job.output(index)
            assert f"{job.host(1).name} does not see the state directory /tmp/state" in said, said


def test_a_state_directory_that_vanishes_stops_nothing_and_is_named(tmp_path: Path) -> None:
    """Goal: H3. Method: the directory is taken away while the job runs; ranks live on, and the log says what is wrong."""
    with job_of_hosts(tmp_path, 2, options=_with_state(tmp_path)) as job:
        job.start()
        job.await_life(0)
        before = job.rank_pids()
        (tmp_path / "state").rename(tmp_path / "elsewhere")
        until(lambda: "No such file or directory" in job.account(), job.account, 10.0)
        assert job.rank_pids() == before
        assert set(job.states(0)) == {"here"}
        (tmp_path / "elsewhere").rename(tmp_path / "state")
        until(lambda: "can be written again" in job.account(), job.account, 10.0)
        job.finish()
        assert job.codes() == [0, 0]
