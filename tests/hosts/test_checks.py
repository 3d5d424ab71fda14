"""``penstock hosts check`` over real hosts: who is slow, who has other versions, whose network is bad; and nobody else is named."""

from pathlib import Path

import penstock
from tests.hosts.checked_hosts import (
    deafen_to,
    has_quotas,
    other_torch,
    report_of,
    slow_down,
    start_check,
    words_about,
)
from tests.hosts.job_of_hosts import job_of_hosts, until


def test_a_slow_host_and_one_with_another_torch_are_named_and_no_other(tmp_path: Path) -> None:
    """Method: the processors of one of six hosts get a quota, and another one's packages say that it has another torch."""
    with job_of_hosts(tmp_path, 6) as job:
        path = f"{other_torch(tmp_path)}:{Path(penstock.__file__).parents[1]}"
        start_check(job, 3)
        until(lambda: job.parts(3, "coordinator"), job.account)
        with slow_down(job.host(3)):
            start_check(job, 0, 1, 2, variables={"PYTHONPATH": job.variables()["PYTHONPATH"]})
            start_check(job, 4, variables={"PYTHONPATH": path})
            start_check(job, 5)
            report = report_of(job)
        names = [host.name for host in job.world.hosts]
        slow = {3: ["cpu"]} if has_quotas() else {}
        wanted = {names[host]: checks for host, checks in {**slow, 4: ["ver"]}.items()}
        found = {name: words_about(report, name) for name in names}
        assert {name: checks for name, checks in found.items() if checks} == wanted, report["findings"]
        assert report["fit"] is False
        assert job.codes() == [1] * 6
        job.assert_nothing_left()


def test_a_host_that_does_not_hear_most_others_is_named_and_its_partners_are_not(tmp_path: Path) -> None:
    """Method: one of six hosts drops what comes from four others, one way; the grid is 80 columns wide at most."""
    with job_of_hosts(tmp_path, 6) as job:
        deafen_to(job.host(2), [job.host(index) for index in (1, 3, 4, 5)])
        start_check(job, json=False)
        name = job.host(2).name
        assert job.codes(patience_s=60.0) == [1] * 6
        shown = job.output(0).splitlines()
        assert any(line.startswith(f"{name}: net: cannot talk") for line in shown), job.output(0)
        assert any(line.endswith(f"not fit: {name}") for line in shown), job.output(0)
        assert all(len(line) <= 80 for line in shown), job.output(0)
        row = next(line for line in shown if line.startswith(name))
        assert row.endswith("BAD")


def test_hosts_of_a_job_are_checked_while_it_runs(tmp_path: Path) -> None:
    """Method: three hosts run ranks; all are checked from one of them, then one alone. No rank notices."""
    with job_of_hosts(tmp_path, 3, options=("--lease", "30s")) as job:
        job.start()
        life, pids = job.await_life(0), job.rank_pids()
        said = job.penstock(1, "hosts", "check", job.name(1), "--for", "10s")
        assert said.returncode == 0, said.stdout + said.stderr
        assert "3 hosts checked" in said.stderr
        assert "fewer than 5 hosts" in said.stderr
        assert "processor" not in said.stdout
        one = job.penstock(0, "hosts", "check", job.name(0), "--hosts", job.host(2).name, "--for", "10s")
        assert one.returncode == 0, one.stdout + one.stderr
        assert "1 host checked" in one.stderr
        job.host(2).freeze()
        try:
            silent = job.penstock(0, "hosts", "check", job.name(0), "--for", "4s")
        finally:
            job.host(2).thaw()
        assert silent.returncode == 1
        assert f"{job.host(2).name}: net: not heard" in silent.stdout
        assert (job.lives()[0], job.rank_pids()) == (life, pids)
        job.finish()
        assert job.codes() == [0] * 3
