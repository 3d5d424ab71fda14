"""Hosts that stand still as a whole, as a paused machine does: shorter than a lease nobody notices, longer they have lost their ranks."""

import threading
import time
from pathlib import Path

from tests.hosts.job_of_hosts import job_of_hosts, until


def test_a_host_frozen_for_less_than_its_lease_loses_nothing(tmp_path: Path) -> None:
    """Goal: H3. Method: freeze the control group of everything on a host until it is shown as unheard, and thaw it."""
    with job_of_hosts(tmp_path, 3, options=("--lease", "8s")) as job:
        job.start()
        job.await_life(0)
        before = job.rank_pids()
        job.host(2).freeze()
        until(lambda: "unheard" in job.states(0), job.account, 5.0)
        job.host(2).thaw()
        until(lambda: job.states(0) == ["here"] * 3, job.account)
        assert job.rank_pids() == before
        assert job.lives() == [0, 0, 0]
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()


def test_a_host_frozen_past_its_lease_has_no_ranks_when_it_is_thawed_and_may_come_again(
    tmp_path: Path,
) -> None:
    """Goal: H2 on a host whose processes cannot act, and P2 on the others.

    Method: freeze it until the leader calls it expired and the others have ended the life; thaw it. What the kernel's timers had in store
    for keeper and agent happens then, so its ranks are gone at once; no rank began anywhere meanwhile.
    """
    with job_of_hosts(tmp_path, 3) as job:
        job.start()
        job.await_life(0)
        others = job.rank_pids(0, 1)
        job.host(2).freeze()
        until(lambda: job.states(0) == ["here", "here", "expired"], job.account, 6.0)
        until(lambda: job.rank_pids(0, 1) != others, job.account, 5.0)
        assert job.lives() == [0, 0, 0]
        frozen = job.rank_pids(2)[2]
        assert frozen
        job.host(2).thaw()
        until(lambda: not set(job.rank_pids(2)[2]) & set(frozen), job.account, 1.5)
        _come_again(job, 2)
        assert job.await_life(1) >= 1
        job.finish()
        assert job.codes() == [0, 0, 0]
        job.assert_nothing_left()


def _come_again(job, index: int) -> None:  # type: ignore[no-untyped-def]
    """Start a host anew if its keeper's time was over, as an engine does."""
    host = job.host(index)
    deadline = time.monotonic() + 5.0
    while (
        time.monotonic() < deadline
        and job.launchers[index].poll() is None
        and not job.rank_pids(index)[index]
    ):
        threading.Event().wait(0.02)
    if job.launchers[index].poll() is not None:
        host.await_(lambda: not host.processes(), "to have nothing left")
        job.start(index)
