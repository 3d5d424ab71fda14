"""A job of hosts of an ordinary user, who owns no control group: the same promises as for root."""

import os
import signal
from pathlib import Path

from tests.hosts.job_of_hosts import job_of_hosts, until

#: Of `nobody`.
USER = 65_534


def test_an_ordinary_user_runs_a_job_of_hosts_through_a_kill_and_a_cut(tmp_path: Path) -> None:
    """Goal: P2, H2 and H6 without root. Method: kill a rank and an agent, cut a host off beyond its lease, and end."""
    with job_of_hosts(tmp_path, 3, user=USER) as job:
        job.let_user_in()
        job.start()
        life = job.await_life(0)
        for host, pids in job.rank_pids().items():
            assert [os.stat(f"/proc/{pid}").st_uid for pid in pids] == [USER], host
        os.kill(job.rank_pids(1)[1][0], signal.SIGKILL)
        life = job.await_life(life + 1)
        os.kill(job.part(2, "agent"), signal.SIGKILL)
        life = job.await_life(life + 1)
        job.host(1).cut()
        until(lambda: not job.rank_pids(1)[1], job.account, 4.0)
        until(lambda: "expired" in job.states(0), job.account, 5.0)
        job.host(1).join()
        job.await_life(life + 1)
        shown = job.penstock(2, "ps", job.name(2))
        assert shown.returncode == 0, shown.stderr
        assert "rank-2" in shown.stdout, shown.stdout
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()
