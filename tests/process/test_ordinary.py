"""P2 for an ordinary user, whoever runs the tests: nothing of it needs a privilege."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.process import Launch
from tests.process.jobs import PATIENCE_S, Running, is_alive, wait_until
from tests.process.ordinary_user import USER, ordinary_job

FAMILY_SIZE = 4
RANKS = 2


@pytest.fixture
def running() -> Iterator[Running]:
    family = Path(__file__).with_name("family.sh")
    with ordinary_job(
        lambda home: Launch(command=["bash", str(home / family.name)], ranks=RANKS), family
    ) as started:
        yield started


@pytest.mark.parametrize("victim", ["launcher", "keeper", "agent", "rank"])
def test_whoever_is_killed_takes_the_tree_along(running: Running, victim: str) -> None:
    pids = running.pids(RANKS * FAMILY_SIZE)
    state = running.state()
    assert {os.stat(f"/proc/{pid}").st_uid for pid in [*pids, state.agent, state.keeper]} == {USER}
    assert running.launcher is not None
    numbers = {
        "launcher": running.launcher.pid,
        "keeper": state.keeper,
        "agent": state.agent,
        "rank": state.gangs[0].workers[1]["pid"],
    }

    os.kill(numbers[victim], signal.SIGKILL)

    everyone = [*pids, state.keeper, state.agent]
    wait_until(lambda: not any(map(is_alive, everyone)), "everybody is gone")
    running.launcher.wait(PATIENCE_S)
    assert running.job.phase() == ("stopped" if victim == "launcher" else "failed")


@pytest.mark.parametrize("victim", ["coordinator", "grandchild"])
def test_who_owns_nothing_takes_nobody_along(running: Running, victim: str) -> None:
    pids = running.pids(RANKS * FAMILY_SIZE)
    state = running.state()
    ranks = {worker["pid"] for _, worker in state.workers}
    number = state.coordinator if victim == "coordinator" else next(pid for pid in pids if pid not in ranks)
    assert os.stat(f"/proc/{number}").st_uid == USER

    os.kill(number, signal.SIGKILL)

    wait_until(lambda: not is_alive(number), "it is gone")
    wait_until(lambda: is_alive(running.state().coordinator), "there is a coordinator")
    assert all(is_alive(pid) for pid in [*pids, state.keeper, state.agent] if pid != number)
    assert running.job.phase() == "running"
    assert running.launcher is not None
    running.launcher.send_signal(signal.SIGTERM)
    running.launcher.wait(PATIENCE_S)
    wait_until(lambda: not any(map(is_alive, [*pids, state.keeper, state.agent])), "everybody is gone")
