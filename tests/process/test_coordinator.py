"""P4: the coordinator owns nothing. Killed, it comes back from its journal, and no worker notices."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from penstock.process.job.catalogue import JobState
from tests.process.jobs import PATIENCE_S, PENSTOCK, Running, is_alive, penstock, role, wait_until

Run = Callable[..., Running]
DEAF = "trap '' TERM; touch $MARKS/$$.pid; while :; do sleep 1000; done"
PATIENT = "touch $MARKS/$$.pid; exec sleep 1000"
FAMILY = [sys.executable, str(Path(__file__).with_name("family.py"))]


def replaced(running: Running, old: int) -> int:
    """The coordinator that follows."""
    wait_until(lambda: running.state().coordinator not in (0, old), "there is another coordinator")
    return running.state().coordinator


def test_killed_again_and_again_it_comes_back_and_nobody_is_touched(run: Run) -> None:
    """Goal: P4. Method: five kills in a row; every process of the job is the same afterwards, and then a rank's death still counts."""
    running = run("--ranks", "2", "--restarts", "1", "--", *FAMILY)
    pids = running.pids(10)
    before = running.state()
    coordinator = before.coordinator
    for _ in range(5):
        os.kill(coordinator, signal.SIGKILL)
        coordinator = replaced(running, coordinator)
    state = running.state()
    assert all(map(is_alive, pids))
    assert (state.agent, state.keeper, state.incarnation) == (before.agent, before.keeper, 0)

    os.kill(state.gangs[0].workers[0]["pid"], signal.SIGKILL)
    running.pids(20)
    assert running.state().incarnation == 1
    os.kill(replaced(running, 0), signal.SIGKILL)
    wait_until(lambda: running.state().coordinator not in (0, coordinator), "another one again")
    os.kill(running.state().gangs[0].workers[1]["pid"], signal.SIGKILL)

    # What the first one decided is remembered by the last: the budget is spent.
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert b"all 1 restarts are spent" in err
    lines = [json.loads(line) for line in (running.job.directory / "journal.jsonl").read_text().splitlines()]
    assert [line["incarnation"] for line in lines if line["event"] == "ordered"] == [0, 1]


def test_one_that_is_stuck_is_replaced(run: Run) -> None:
    """Goal: no wait without a limit. Method: it is stopped, so it answers nothing, and then the job is asked to stop."""
    running = run("--detach", "--", "bash", "-c", "touch $MARKS/$$.pid; sleep 1000 & wait")
    running.pids(1)
    state = running.state()
    os.kill(state.coordinator, signal.SIGSTOP)

    done = penstock(running.home, "stop", running.job.id, "--grace", "1")

    assert done.returncode == 0, done.stderr
    assert running.job.phase() == "stopped"
    assert not is_alive(state.coordinator)


def is_known(state: JobState, life: int) -> bool:
    """Whether a life of the first gang is written down, with all of its three ranks."""
    return state.incarnation == life and len(state.gangs[0].workers) == 3


def test_killed_all_the_time_while_gangs_restart_it_loses_no_life_and_adds_none(run_roles: Run) -> None:
    """Goal: P4 in the worst moments. Method: every coordinator that shows up is killed at once while three ranks die one after the
    other; lives are counted one by one, each budget is charged once, and the journal has every line once."""
    running = run_roles(role("rank", PATIENT, ranks=3))
    killed: set[int] = set()

    def hunt(least: int) -> Callable[[], bool]:
        """Kills whoever coordinates, until it has hit often enough and the gang is whole in its next life."""

        def again() -> bool:
            state = running.state()
            enough = len(killed) >= least
            if not enough and state.coordinator not in (0, *killed) and is_alive(state.coordinator):
                killed.add(state.coordinator)
                os.kill(state.coordinator, signal.SIGKILL)
            return enough and (state.phase, state.incarnation) == ("running", life)

        return again

    for life in (1, 2, 3):
        running.pids(3 * life)
        # Ranks may speak before the agent has written down that they are there.
        wait_until(lambda life=life: is_known(running.state(), life - 1), "all ranks are known")  # type: ignore[misc]
        os.kill(running.state().gangs[0].workers[life - 1]["pid"], signal.SIGKILL)
        wait_until(hunt(4 * life), f"life {life} has begun")
    running.pids(12)
    wait_until(lambda: len(running.journal("started")) == 4, "the last life is written down")
    state = running.state()
    assert all(is_alive(worker["pid"]) for _, worker in state.workers)
    assert [failure["incarnation"] for failure in state.gangs[0].failures] == [0, 1, 2]
    for event, expected in (("ordered", [0, 1, 2, 3]), ("started", [0, 1, 2, 3]), ("examined", [0, 1, 2])):
        assert [line["incarnation"] for line in running.journal(event)] == expected, event
    assert [line["failure"]["rank"] for line in running.journal("failed")] == [0, 1, 2]  # type: ignore[index]
    assert len(state.incidents) == 3


def test_a_rank_that_dies_while_it_is_stuck_is_restarted_by_the_next(run: Run) -> None:
    """Goal: P4 for a coordinator that lives and does nothing. Method: it is stopped, then a rank is killed."""
    running = run("--ranks", "2", "--restarts", "1", "--", "bash", "-c", PATIENT)
    before = running.pids(2)
    state = running.state()
    os.kill(state.coordinator, signal.SIGSTOP)

    os.kill(before[0], signal.SIGKILL)

    after = [pid for pid in running.pids(4) if pid not in before]
    assert not any(map(is_alive, before))
    assert all(map(is_alive, after))
    assert not is_alive(state.coordinator)
    assert running.state().agent == state.agent


def test_a_stop_is_not_forgotten_with_the_agent_that_was_asked(run: Run) -> None:
    """Goal: who was asked to stop is not restarted. Method: the agent is killed while its deaf rank has time to leave."""
    running = run("--detach", "--restarts", "3", "--", "bash", "-c", DEAF)
    running.pids(1)
    variables = {**os.environ, "PENSTOCK_HOME": str(running.home)}
    asking = subprocess.Popen([*PENSTOCK, "stop", running.job.id, "--grace", "30"], env=variables)
    wait_until(lambda: running.state().phase == "ending", "the stop is under way")

    os.kill(running.state().agent, signal.SIGKILL)

    assert asking.wait(PATIENCE_S) == 0
    assert running.job.phase() == "stopped"
    assert running.state().incarnation == 0
