"""P2 and P6 where not all restart: who restarts with whom and who is untouched, whose end is everybody's, and what a failure is charged to."""

import os
import signal
from collections.abc import Callable

import pytest

from tests.process.jobs import PATIENCE_S, Running, is_alive, role, wait_until

RunRoles = Callable[..., Running]
#: Writes its number down, then waits.
PATIENT = "touch $MARKS/$$.pid; exec sleep 1000"


def lives(running: Running) -> dict[str, tuple[int, int]]:
    """Of every worker, its process and its life."""
    return {
        f"{gang.role}-{worker['rank']}": (worker["pid"], gang.incarnation or 0)
        for gang, worker in running.state().workers
    }


@pytest.mark.parametrize(
    ("scope", "renewed"),
    [
        ("one", {"a-1"}),
        ("gang", {"a-0", "a-1", "a-2"}),
        ("all", {"a-0", "a-1", "a-2", "b-0", "b-1"}),
    ],
)
def test_who_restarts_is_what_the_scope_says(run_roles: RunRoles, scope: str, renewed: set[str]) -> None:
    """Goal: exactly those of the scope get a new life. Method: kill a-1; compare processes and lives before and after."""
    running = run_roles(role("a", PATIENT, ranks=3, restart=scope), role("b", PATIENT, ranks=2))
    running.pids(5)
    # Ranks may speak before the agent has written down that they are there.
    wait_until(lambda: len(lives(running)) == 5, "all ranks are known")
    before = lives(running)

    os.kill(before["a-1"][0], signal.SIGKILL)

    running.pids(5 + len(renewed))
    wait_until(lambda: all(lives(running)[name][1] == 1 for name in renewed), "all are in their second life")
    after = lives(running)
    assert {name for name in before if before[name] != after[name]} == renewed
    assert not any(is_alive(before[name][0]) for name in renewed)
    assert all(is_alive(pid) for pid, _ in after.values())
    failed = [entry["failure"] for entry in running.journal("failed")]
    assert [failure["cause"] for failure in failed] == ["crash"] + ["peer"] * (scope == "all")  # type: ignore[index]


def test_a_service_that_dies_is_started_again_and_those_who_need_it_run_on(run_roles: RunRoles) -> None:
    running = run_roles(
        role("data", PATIENT, kind="service"), role("train", PATIENT, after=["data"], ranks=2)
    )
    running.pids(3)
    before = lives(running)

    os.kill(before["data-0"][0], signal.SIGKILL)

    running.pids(4)
    wait_until(lambda: lives(running)["data-0"][1] == 1, "the service is in its second life")
    assert {name: seen for name, seen in lives(running).items() if name != "data-0"} == {
        name: seen for name, seen in before.items() if name != "data-0"
    }


def test_a_task_that_fails_ends_the_job_and_who_comes_after_it_never_begins(run_roles: RunRoles) -> None:
    running = run_roles(
        role("other", PATIENT),
        role("fetch", 'until [ -n "$(ls $MARKS)" ]; do :; done; exit 9', kind="task", crashes=0),
        role("train", "touch $MARKS/train", after=["fetch"]),
    )
    other = running.pids(1)
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 9
    assert b"fetch-0 exited with code 9; no restarts were asked for" in err
    assert not any(map(is_alive, other))
    assert not (running.marks / "train").exists()
    assert {gang.role: gang.phase for gang in running.state().gangs} == {
        "other": "stopped",
        "fetch": "failed",
        "train": "stopped",
    }


def test_being_sent_away_costs_no_restart_but_a_crash_does(run_roles: RunRoles) -> None:
    """Goal: budgets differ by cause. Method: no crash is allowed; code 75 twice, then a crash."""
    script = "[ $PENSTOCK_INCARNATION = 2 ] && exit 6; exit 75"
    running = run_roles(role("rank", script, crashes=0))
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 6, err
    failures = running.state().gangs[0].failures
    assert [failure["cause"] for failure in failures] == ["preemption", "preemption", "crash"]
    assert b"rank 0 exited with code 6; no restarts were asked for" in err
