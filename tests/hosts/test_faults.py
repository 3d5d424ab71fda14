"""Faults of a job of many hosts with real processes: who is gone, and who is untouched."""

import os
import signal
from pathlib import Path

from tests.hosts.job_of_hosts import job_of_hosts, until


def test_a_rank_killed_on_one_host_restarts_all_hosts_together(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 3, ranks=2) as job:
        job.start()
        job.await_life(0)
        before = job.rank_pids()
        os.kill(before[1][0], signal.SIGKILL)
        assert job.await_life(1) == 1
        after = job.rank_pids()
        assert not {pid for pids in before.values() for pid in pids} & {pid for pids in after.values() for pid in pids}
        assert all(lives.read_text().split() == ["0", "1"] for lives in tmp_path.glob("lives-*"))
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()
