"""Faults while a spare takes over: each rank holds a lock in the shared directory, so nobody is there twice (H2)."""

from pathlib import Path

from tests.hosts.job_of_hosts import JobOfHosts, job_of_hosts, until

USUAL = ("--lease", "2s")


def _names_by_rank(job: JobOfHosts) -> dict[int, str]:
    """Who has which host rank, as the first host knows."""
    rows = job.ask(0, "hosts")
    hosts = (rows[0]["hosts"] or []) if rows else []
    return {host["rank"]: host["name"] for host in hosts if host["rank"] is not None}


def _begin(job: JobOfHosts, *spares: int) -> None:
    job.start()
    job.await_life(0)
    job.start(*spares, node_rank=None)
    until(lambda: job.states(0).count("spare") == len(spares), job.account)


def _taken_over(job: JobOfHosts, rank: int) -> int:
    """Which host has the host rank of one that was lost, from the moment when that is decided."""
    names = [host.name for host in job.world.hosts]
    until(lambda: _names_by_rank(job).get(rank, names[rank]) != names[rank], job.account)
    return names.index(_names_by_rank(job)[rank])


def test_a_spare_is_warm_and_its_end_changes_nothing_but_a_count(tmp_path: Path) -> None:
    """Method: Pythons are kept warm; the spare has one and no rank, and is lost with everything on it."""
    with job_of_hosts(tmp_path, 2, world=3, options=(*USUAL, "--zygote", "always")) as job:
        _begin(job, 2)
        until(lambda: job.host(2).pids("zygote/__main__.py"), job.account)
        assert not job.rank_pids(2)[2]
        before = job.rank_pids()
        job.lose(2)
        until(lambda: job.states(0) == ["here", "here"], job.account)
        assert (job.rank_pids(), job.lives()) == (before, [0, 0])
        job.finish()
        assert job.codes() == [0, 0]


def test_two_hosts_that_are_lost_within_one_lease_cost_one_restart(tmp_path: Path) -> None:
    """Goal: the gang restarts once. Method: the second is lost when the first is already missed; there are two spares. A majority of those who
    keep the journal stays, because without one nobody may decide anything."""
    with job_of_hosts(tmp_path, 4, world=6, options=USUAL) as job:
        _begin(job, 4, 5)
        rows = job.ask(0, "hosts")[0]["hosts"]
        votes = {host["rank"] for host in rows if host.get("voter")}
        (first,) = {1, 2, 3} - votes
        second = max(votes - {0})
        job.lose(first)
        until(lambda: "unheard" in job.states(0), job.account)
        job.lose(second)
        (stays,) = votes - {0, second}
        job.await_hosts(1, 0, stays, 4, 5)
        assert job.lives() == [1, 1, 1, 1]
        # Nobody else moves.
        after, names = _names_by_rank(job), [host.name for host in job.world.hosts]
        assert (after[0], after[stays]) == (names[0], names[stays])
        assert {after[first], after[second]} == {names[4], names[5]}
        # What happened here is a profile for simulations, and it says how little that is.
        words = (
            "--faults",
            "from",
            job.name(0),
            "--hosts",
            "4",
            "--for",
            "1h",
            "--seeds",
            "1",
            "--save-every",
            "10m",
        )
        said = job.penstock(0, "simulate", *words)
        assert "faults: 1 event in" in said.stderr, said
        job.finish()
        assert job.codes(0, stays, 4, 5) == [0, 0, 0, 0]


def test_a_spare_that_dies_while_it_takes_over_is_followed_by_the_next(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 2, world=4, options=USUAL) as job:
        _begin(job, 2, 3)
        job.lose(1)
        first = _taken_over(job, 1)
        job.lose(first)
        (left,) = {2, 3} - {first}
        job.await_hosts(1, 0, left)
        job.finish()
        assert job.codes(0, left) == [0, 0]


def test_a_host_that_returns_in_mid_replacement_is_a_spare(tmp_path: Path) -> None:
    with job_of_hosts(tmp_path, 2, world=3, options=USUAL) as job:
        _begin(job, 2)
        job.host(1).cut()
        assert _taken_over(job, 1) == 2
        job.host(1).join()
        job.await_hosts(1, 0, 2)
        until(lambda: "spare" in job.states(0), job.account)
        assert job.lives() == [1, 1]
        job.finish()
        assert job.codes(0, 2) == [0, 0]
