"""A host between the leader and others is cut off: those below it find another parent and lose nothing."""

import subprocess
from pathlib import Path

import pytest

from tests.hosts.job_of_hosts import PENSTOCK, JobOfHosts, job_of_hosts, until

HOSTS = 7


def _interior(job: JobOfHosts) -> tuple[int, int]:
    """A leader, and the host at the first place below it: with a fan-out of two it has two hosts below."""
    until(lambda: job.leader(0) is not None, job.account)
    leader = job.leader(0)
    assert leader is not None
    # The leader swaps places with host rank 0.
    return leader, 0 if leader == 1 else 1


def _ask_for_work(job: JobOfHosts, asked: int) -> "tuple[subprocess.Popen[bytes], Path]":
    """A question that all hosts work for already."""
    output = job.folder / "answer"
    words = [*PENSTOCK, "exec", job.name(asked), "--where", "here", "--patience", "20", "--", "sleep", "3.25"]
    talk = job.host(asked).start(words, output=output, variables=job.variables())
    until(lambda: all(job.host(index).pids("sleep 3.25") for index in range(HOSTS)), output.read_text)
    return talk, output


@pytest.mark.parametrize("lease", ["8s", "3s"], ids=["before", "beyond"])
def test_an_interior_host_cut_off_costs_those_below_it_nothing(tmp_path: Path, lease: str) -> None:
    """Goal: H3 below a host that is gone. Method: cut it off for less and for more than the lease; nobody else expires.

    What is asked two levels below the leader is answered for all hosts, although the question passes the hosts between twice.
    """
    with job_of_hosts(tmp_path, HOSTS, options=("--lease", lease, "--fanout", "2")) as job:
        job.start()
        job.await_life(0)
        leader, interior = _interior(job)
        before, asked = job.rank_pids(), 6
        until(lambda: len(job.ask(asked, "ps")) == HOSTS, job.account, 5.0)
        states = ["here"] * HOSTS
        talk, answer = _ask_for_work(job, asked)
        job.host(interior).cut()
        states[interior] = "unheard" if lease == "8s" else "expired"
        until(lambda: job.states(asked) == states, job.account, 7.0)
        # H5: those below it are asked again where they are now, and answer for the work that they had begun.
        assert talk.wait(timeout=60) == 1, answer.read_text()
        account = f"{HOSTS - 1} of {HOSTS} hosts · unheard: {job.host(interior).name} · refused: none"
        assert account in answer.read_text(), answer.read_text()
        if lease == "3s":
            assert not job.rank_pids(interior)[interior]
            assert job.lives() == [0] * HOSTS
        job.host(interior).join()
        until(lambda: job.states(leader) == ["here"] * HOSTS, job.account)
        if lease == "8s":
            assert job.rank_pids() == before
        else:
            assert job.await_life(1) == 1
        job.finish()
        assert job.codes() == [0] * HOSTS
        job.assert_nothing_left()
