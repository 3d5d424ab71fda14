"""States of hosts beside here and lost: processes that cannot be killed, and hosts whose last process was seen to end (H2, H8)."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.job_of_hosts import JobOfHosts, job_of_hosts, until

#: The freezer of cgroup v1.
FREEZER = Path("/sys/fs/cgroup/freezer")
#: A process counts as unkillable five seconds after SIGKILL.
PATIENCE_S = 60.0
#: Where this is writable, a process can be made to sleep in the kernel for real; nothing else makes one that SIGKILL does not end.
if os.access(FREEZER, os.W_OK):

    @contextmanager
    def frozen(pid: int) -> Iterator[None]:
        """Keep a process in the kernel: a frozen one takes no signal, not even SIGKILL, until it is thawed."""
        group = FREEZER / f"penstock-test-{os.getpid()}-{pid}"
        group.mkdir()
        try:
            (group / "cgroup.procs").write_text(str(pid))
            (group / "freezer.state").write_text("FROZEN")
            yield
        finally:
            (group / "freezer.state").write_text("THAWED")
            until(
                lambda: not (group / "cgroup.procs").read_text().strip(), lambda: "a thawed process is there"
            )
            group.rmdir()

    def _events(job: JobOfHosts, index: int) -> str:
        return job.penstock(index, "events", job.name(index)).stdout

    @pytest.mark.parametrize(
        "elsewhere", [False, True], ids=["and its own rank back", "while another host goes on"]
    )
    def test_a_host_whose_processes_outlive_sigkill_gets_no_rank_until_they_are_gone(
        tmp_path: Path, elsewhere: bool
    ) -> None:
        """Goal: item 3, H2. Method: a rank sleeps in the kernel (frozen) when its gang is ended; once with a host in reserve, once without."""
        with job_of_hosts(tmp_path, 3, world=4, options=("--lease", "2s", "--host-wait", "120s")) as job:
            job.start()
            job.await_life(0)
            (rank,) = job.rank_pids(2)[2]
            with frozen(rank):
                os.kill(job.rank_pids(1)[1][0], signal.SIGKILL)
                until(lambda: "unkillable" in job.states(0), job.account, PATIENCE_S)
                assert job.states(0) == ["here", "here", "unkillable"]
                assert job.rank_pids(0, 1) == {0: [], 1: []}
                shown = job.penstock(0, "hosts", "list", job.name(0)).stdout
                assert "unkillable" in shown, shown
                if elsewhere:
                    # The one in the kernel runs no more, but it has its file open until it is gone.
                    (tmp_path / "lock-2").unlink()
                    job.start(3, node_rank=2)
                    until(lambda: all(len(job.rank_pids(at)[at]) == 1 for at in (0, 1, 3)), job.account)
                    assert job.rank_pids(2) == {2: [rank]}
                    until(lambda: job.states(0) == ["here"] * 3 + ["unkillable"], job.account)
            if elsewhere:
                # It waits for a place, as a host in reserve.
                until(lambda: job.states(0) == ["here"] * 3 + ["spare"], job.account)
                assert job.lives() == [1, 1, 1]
            else:
                assert job.await_life(1) == 1
            assert "the host of host rank 2 is unkillable" in _events(job, 0)
            job.finish()
            ended = (0, 1, 3) if elsewhere else (0, 1, 2)
            assert job.codes(*ended) == [0, 0, 0]
            job.assert_nothing_left(*ended)
