"""Jobs that grow as soon as hosts are here again: ranks are asked to save and leave, and nobody is ended who does not."""

from pathlib import Path

from tests.hosts.elastic_training import shrink_and_grow
from tests.hosts.job_of_hosts import JobOfHosts, job_of_hosts, until

ELASTIC = (
    "--lease",
    "2s",
    "--replace-within",
    "0s",
    "--grow",
    "saved",
    "--grace-save",
    "2s",
    "--grace",
    "1s",
)


def _shrunk(job: JobOfHosts, manner: str) -> list[str]:
    """Have a job of three go on with two, and bring the third host back."""
    program = [str(job.folder / "rank_program.py"), str(job.folder), manner]
    job.start(nnodes="2:3", program=program)
    job.await_life(0)
    job.lose(2)
    job.await_hosts(1, 0, 1)
    job.start(2, nnodes="2:3", node_rank=None, program=program)
    return program


def _story(job: JobOfHosts) -> str:
    return job.penstock(0, "events", job.name(0)).stdout


def test_a_smaller_job_has_its_ranks_save_and_grows_at_once(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3, options=ELASTIC) as job:
        _shrunk(job, "listens")
        job.await_hosts(2, 0, 1, 2)
        story = _story(job)
        assert "asked to save and leave: the job goes on with 3 hosts instead of 2" in story
        assert "(resize" in story, story
        job.finish()
        assert job.codes() == [0, 0, 0]


def test_ranks_that_do_not_leave_run_on_and_that_is_said(tmp_path: Path) -> None:
    """Goal: growing costs nobody a step. Method: ranks make steps and do not heed the notice; the job grows at its next restart."""
    with job_of_hosts(tmp_path, 3, options=ELASTIC) as job:
        _shrunk(job, "hears")
        until(lambda: "no rank has left 2 s after they were asked" in _story(job), job.account)
        assert job.lives()[:2] == [1, 1]
        (tmp_path / "fail-0").touch()
        until(lambda: not job.rank_pids(0)[0], job.account)
        (tmp_path / "fail-0").unlink()
        job.await_hosts(2, 0, 1, 2)
        job.finish()
        assert job.codes() == [0, 0, 0]


def test_training_goes_on_with_half_of_its_hosts_and_with_all_again_over_equal_batches(
    tmp_path: Path,
) -> None:
    """Goal: L1 over hosts. Method: FSDP2; a host is lost and comes back, and the job grows by a save. Four hosts and DDP are in the benchmarks."""
    shrink_and_grow(tmp_path, "fsdp", 2)
