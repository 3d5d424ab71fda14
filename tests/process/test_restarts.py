"""A gang that loses a rank lives on as a new incarnation, within its budget, and every failure leaves an incident."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.jobs import PATIENCE_S, Running, is_alive, wait_until

Run = Callable[..., Running]
FAMILY = [sys.executable, str(Path(__file__).with_name("family.py"))]
#: Writes down which life it sees, then waits; the file is there before the job can be asked about it.
PATIENT = "echo $RANK $PENSTOCK_INCARNATION $TORCHELASTIC_RESTART_COUNT $MASTER_PORT; touch $MARKS/$$.pid; sleep 1000 & wait"


@pytest.mark.parametrize("victim", ["rank", "agent"])
def test_a_killed_rank_or_agent_means_a_new_life_for_all(run: Run, victim: str) -> None:
    """Goal: the gang is whole again, with a number that every rank knows, and nothing of the old life is left."""
    running = run("--ranks", "2", "--restarts", "1", "--", *FAMILY)
    before = running.pids(10)
    state = running.state()

    os.kill(state.agent if victim == "agent" else state.gangs[0].workers[1]["pid"], signal.SIGKILL)

    after = [pid for pid in running.pids(20) if pid not in before]
    assert not any(map(is_alive, before))
    assert all(map(is_alive, after))
    newest = running.state()
    assert (newest.phase, newest.incarnation, newest.keeper) == ("running", 1, state.keeper)
    assert (newest.agent == state.agent) is (victim == "rank")
    assert len(newest.gangs[0].failures) == 1


def test_ranks_know_their_life_and_its_port(run: Run) -> None:
    running = run("--ranks", "2", "--restarts", "1", "--", "bash", "-c", PATIENT)
    running.pids(2)
    os.kill(running.state().gangs[0].workers[0]["pid"], signal.SIGKILL)
    running.pids(4)
    wait_until(lambda: len(_log(running, 1).splitlines()) == 2, "rank 1 said twice what it knows")
    first, second = (line.split() for line in _log(running, 1).splitlines())
    assert (first[:3], second[:3]) == (["1", "0", "0"], ["1", "1", "1"])
    newest = running.state()
    assert second[3] == str(newest.gangs[0].master_port)
    # Where the new life begins in the log is written down.
    assert newest.gangs[0].workers[1]["stdout_from"] == len(" ".join(first)) + 1


def test_the_budget_is_kept_and_the_exit_code_is_the_first_failures(run: Run) -> None:
    """Goal: three lives, then the code of rank 1. Rank 0 would wait for ever."""
    script = "[ $RANK = 1 ] && exit 7; sleep 1000"
    running = run("--ranks", "2", "--restarts", "1", "--", "bash", "-c", script)
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 7
    assert b"rank 1 exited with code 7; all 1 restarts are spent" in err
    assert [failure["what"] for failure in running.state().gangs[0].failures] == [
        "rank 1 exited with code 7"
    ] * 2


def test_the_same_traceback_twice_is_not_tried_a_third_time(run: Run) -> None:
    running = run("--restarts", "9", "--", sys.executable, "-c", "raise KeyError('weight')")
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 1
    assert b"the same failure 2 times in a row" in err
    assert running.state().incarnation == 1


def test_an_incident_names_the_first_cause_and_has_last_lines_without_secrets(run: Run) -> None:
    """Goal: one file says what happened. Method: rank 1 says a secret and dies; rank 0 had done nothing wrong."""
    script = "echo rank $RANK is here; [ $RANK = 1 ] || { touch $MARKS/up; sleep 1000 & wait; }; until [ -e $MARKS/up ]; do :; done; echo token $MY_TOKEN >&2; kill -SEGV $$"
    running = run("--ranks", "2", "--", "bash", "-c", script, environment={"MY_TOKEN": "hunter2-hunter2"})
    assert running.launcher is not None
    assert running.launcher.wait(PATIENCE_S) == 128 + signal.SIGSEGV
    text = (running.job.directory / "incidents/0.json").read_text()
    incident = json.loads(text)
    assert incident["first_cause"].startswith("rank 1 was killed by SIGSEGV")
    assert incident["verdict"] == {"do": "fail"}
    assert "no restarts were asked for" in incident["reason"]
    first, second = incident["ranks"]
    assert (first["rank"], first["asked_to_end"], first["stderr"][0]) == (1, False, "token [MY_TOKEN]")
    assert (second["rank"], second["asked_to_end"], second["stdout"]) == (0, True, ["rank 0 is here"])
    assert second["exit"]["signal"] == signal.SIGTERM
    assert "hunter2" not in text
    assert "hunter2" not in (running.job.directory / "job.json").read_text()


def test_the_journal_has_every_decision_in_order(run: Run) -> None:
    running = run("--restarts", "1", "--", "bash", "-c", "exit 3")
    assert running.launcher is not None
    running.launcher.wait(PATIENCE_S)
    lines = (running.job.directory / "journal.jsonl").read_text().splitlines()
    assert [line["event"] for line in map(json.loads, lines)] == [
        "ordered",
        "started",
        "exited",
        "failed",
        "examined",
        "ordered",
        "started",
        "exited",
        "failed",
        "examined",
        "finished",
        "over",
    ]


def _log(running: Running, rank: int) -> str:
    return (running.job.directory / f"logs/rank-{rank}.stdout").read_text()
