"""Failures of a job of many hosts: one story on all of them, with the last words of a host that is gone."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.hosts.job_of_hosts import JobOfHosts, job_of_hosts, until

PROGRAM = Path(__file__).with_name("failing_program.py")
SECRET = "hunter2"
STEPS = 120


def _start(job: JobOfHosts, *indices: int, **changed: object) -> None:
    shutil.copy(PROGRAM, job.folder / PROGRAM.name)
    job.start(*indices, program=[str(job.folder / PROGRAM.name), str(job.folder)], **changed)


def _await_ranks(job: JobOfHosts, life: int, ranks: int) -> None:
    """Until so many ranks have said who they are, in a life."""
    said = [f"rank {rank} of life {life}" for rank in range(ranks)]
    texts = lambda: "".join(job.output(index) for index in range(len(job.world.hosts)))  # noqa: E731
    until(lambda: all(words in texts() for words in said), job.account)


def _incident(job: JobOfHosts, index: int, *words: str) -> dict[str, Any]:
    done = job.penstock(index, "incident", "show", job.name(index), *words, "--json")
    return dict(json.loads(done.stdout)) if done.stdout else {"problem": done.stderr}


def _steps_again(job: JobOfHosts, index: int) -> bool:
    return (_incident(job, index).get("times") or {}).get("first_step_ms") is not None


def test_a_host_that_vanished_has_its_last_lines_and_who_took_over_on_every_host(tmp_path: Path) -> None:
    """Goal: one story. Method: of two hosts one is killed with all on it, a spare takes its place; then every host tells the same, asked
    while the job runs (H5) and when it is over."""
    with job_of_hosts(tmp_path, 2, world=3) as job:
        _start(job, 0, 1)
        _await_ranks(job, 0, 2)
        _start(job, 2, node_rank=None)
        names = [host.name for host in job.world.hosts]
        until(
            lambda: [names[2], "spare"] in [[h["name"], h["state"]] for h in job.ask(0, "hosts")[0]["hosts"]],
            job.account,
        )
        # What was said is told others within a second, and these steps take twice that.
        kept, steps = "rank 1 of life 0", tmp_path / "steps-1-0"
        until(lambda: int(steps.read_text() or 0) > STEPS, job.account)
        job.lose(1)
        _await_ranks(job, 1, 2)
        for index in (0, 2):
            until(
                lambda index=index: _steps_again(job, index), lambda: f"{_incident(job, 0)}\n{job.account()}"
            )
        told = [_incident(job, index) for index in (0, 2)]
        shown = job.penstock(2, "incident", job.name(2))
        job.finish()
        assert job.codes(0, 2) == [0, 0]
        afterwards = job.penstock(2, "incident", "show", job.name(2))

    for one in told:
        assert f"host {names[1]} (host rank 1)" in one["first_cause"]
        assert (one["cause"], one["incarnation"]) == ("host", 0)
        (lost,) = one["lost_hosts"]
        assert (lost["host"], lost["host_rank"]) == (names[1], 1)
        (said,) = lost["stderr"]
        assert (said["rank"], said["incarnation"]) == (1, 0)
        assert kept in said["text"]
        assert one["took_over"] == [{"host_rank": 1, "from": names[1], "to": names[2], "back": False}]
        times = one["times"]
        assert lost["heard_ms"] <= lost["unheard_ms"] <= lost["at_ms"] <= times["ordered_ms"]
        assert times["ordered_ms"] <= times["prepared_ms"] <= times["started_ms"]
        account = one["account"]
        assert (account["asked"], account["unheard"], account["refused"]) == ("0-1", "", [])
        assert {clock["host"] for clock in one["clocks"]} >= {names[0]}
        assert SECRET not in json.dumps(one)
    assert f"{names[2]} took over host rank 1 from {names[1]}" in shown.stdout
    assert f"last lines of rank 1 on {names[1]}, which is lost:" in shown.stdout
    assert "lease" in shown.stdout
    assert "2 of 2 hosts · unheard: none · refused: none" in shown.stderr
    assert "does not run any more" in afterwards.stderr
    assert shown.stdout == afterwards.stdout


def test_ranks_that_fail_on_two_hosts_are_in_order_with_the_traceback_of_the_first(tmp_path: Path) -> None:
    """Method: a rank of the second host raises, then one of the first; the first host is asked, which has seen only an effect."""
    with job_of_hosts(tmp_path, 2) as job:
        _start(job)
        _await_ranks(job, 0, 2)
        (tmp_path / "fail-1").touch()
        _await_ranks(job, 1, 1)
        (tmp_path / "fail-1").unlink()
        names = [host.name for host in job.world.hosts]
        until(lambda: bool(_incident(job, 0).get("failures")), job.account)
        told, shown = _incident(job, 0, "0"), job.penstock(0, "incident", "show", job.name(0), "0")
        listed = job.penstock(1, "incident", "list", job.name(1))
        job.finish()
        job.codes()

    first = told["failures"][0]
    assert (first["rank"], first["host"]) == (1, names[1])
    assert "ValueError: rank 1 found a fault" in told["first_cause"]
    assert "ValueError: rank 1 found a fault" in "".join(one["text"] for one in told["words"])
    assert f"last lines of rank 1 on {names[1]}:" in shown.stdout
    assert "ValueError: rank 1 found a fault" in shown.stdout
    assert "rank 1" in listed.stdout
