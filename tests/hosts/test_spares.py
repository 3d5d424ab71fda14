"""Hosts in reserve, and jobs that go on with fewer hosts and with more again."""

from pathlib import Path

from penstock.run.journal import step_records as records
from tests.conftest import ROOT
from tests.hosts.job_of_hosts import JobOfHosts, job_of_hosts, until
from tests.hosts.train_on_hosts import STEPS
from tests.run.comparing import first_difference
from tests.torch.stream import make_stream

#: Of a machine that does other things as well.
TRAINING_S = 120.0
ELASTIC = ("--lease", "2s", "--replace-within", "1s")


def _hosts(job: JobOfHosts, index: int) -> list[tuple[str, str]]:
    rows = job.ask(index, "hosts")
    return [(host["name"], host["state"]) for host in rows[0]["hosts"] or []] if rows else []


def test_a_host_in_reserve_takes_the_place_of_one_that_is_lost_and_who_comes_back_is_in_reserve(
    tmp_path: Path,
) -> None:
    """Goal: H2, a lost host costs its lease. Method: three hosts for a job of two; one is killed with all on it, started again, and the next is
    cut off."""
    with job_of_hosts(tmp_path, 2, world=3) as job:
        job.start(0, 1)
        job.await_hosts(0, 0, 1)
        job.start(2, node_rank=None)
        names = [host.name for host in job.world.hosts]
        until(lambda: (names[2], "spare") in _hosts(job, 0), job.account)
        job.lose(1)
        job.await_hosts(1, 0, 2)
        assert f"{names[1]} (host rank 1)" in job.penstock(0, "events", job.name(0)).stdout
        job.start(1, node_rank=None)
        until(lambda: (names[1], "spare") in _hosts(job, 0), job.account)
        job.host(2).cut()
        job.await_hosts(2, 0, 1)
        job.host(2).join()
        job.finish()
        assert job.codes(0, 1) == [0, 0]


def test_a_job_goes_on_with_fewer_hosts_and_with_all_of_them_again(tmp_path: Path) -> None:
    """Method: of four hosts for `--nnodes 2:4` two are lost; the job goes on with two, and has all when it restarts after they have come again."""
    with job_of_hosts(tmp_path, 4, options=ELASTIC) as job:
        job.start(nnodes="2:4")
        job.await_life(0)
        assert "may go on with 4, 2 hosts" in job.output(0)
        # By this `penstock.run` refuses a batch that one of them cannot share before the first step.
        environment = Path(f"/proc/{job.rank_pids(3)[3][0]}/environ").read_bytes().split(b"\0")
        assert b"PENSTOCK_WORLD_SIZES=2,4" in environment
        job.lose(1)
        job.lose(3)
        job.await_hosts(1, 0, 2)
        for index in (1, 3):
            job.start(index, nnodes="2:4", node_rank=None)
        until(lambda: [state for _, state in _hosts(job, 0)].count("spare") == 2, job.account)
        life = job.lives()[0]
        (tmp_path / "fail-0").touch()
        until(lambda: not job.rank_pids(0)[0], job.account)
        (tmp_path / "fail-0").unlink()
        job.await_life(life + 1)
        journal = job.penstock(0, "events", job.name(0)).stdout
        for changed in ("goes on with 2 hosts instead of 4", "goes on with 4 hosts instead of 2"):
            assert changed in journal
            assert f"[penstock] the job {changed}" in job.output(0)
        job.finish()
        assert job.codes() == [0, 0, 0, 0]
        job.assert_nothing_left()


def test_a_job_of_min_to_max_begins_with_fewer_hosts_when_others_do_not_come(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3, options=ELASTIC) as job:
        job.start(0, 1, nnodes="2:3")
        job.await_hosts(0, 0, 1)
        job.finish()
        assert job.codes(0, 1) == [0, 0]


def test_training_that_loses_its_first_host_to_a_spare_and_then_another_for_good_is_bit_equal(
    tmp_path: Path,
) -> None:
    """Goal: R1 and L1. Method: two hosts and one in reserve; the first is lost after a checkpoint, and the parameters are those of a run that
    nobody disturbed."""
    (tmp_path / "stream").mkdir()
    make_stream(tmp_path / "stream")
    mark = tmp_path / "waits"
    for name, words in (("whole", []), ("lost", [str(mark)])):
        with job_of_hosts(tmp_path, 2, world=3) as job:
            job.path = (ROOT,)
            script = ["-m", "tests.hosts.train_on_hosts", str(tmp_path / "stream"), str(tmp_path / name)]
            job.start(0, 1, program=[*script, *words])
            if words:
                until(mark.exists, job.account, TRAINING_S)
                # Who comes now is one too many.
                job.start(2, node_rank=None, program=[*script, *words])
                until(lambda: "spare" in [state for _, state in _hosts(job, 0)], job.account)
                job.lose(1)
                assert job.codes(0, 2, patience_s=TRAINING_S) == [0, 0], job.account()
            else:
                assert job.codes(0, 1, patience_s=TRAINING_S) == [0, 0], job.account()
    assert list(records.read(tmp_path / "lost")) == list(range(STEPS))
    assert first_difference(tmp_path / "whole", tmp_path / "lost") == ""
