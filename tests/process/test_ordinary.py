"""P2 for an ordinary user, whoever runs the tests: nothing of it needs a privilege."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.process import Launch, prepare
from penstock.process.launching import agent_path
from tests.process.jobs import PATIENCE_S, Running, end, is_alive, wait_until

#: Of `nobody`, where root runs the tests.
USER = 65534 if os.geteuid() == 0 else os.geteuid()
FAMILY_SIZE = 4
RANKS = 2


@pytest.fixture
def running() -> Iterator[Running]:
    """A foreground job of an ordinary user, in a directory that such a user can reach."""
    with tempfile.TemporaryDirectory(prefix="penstock-ordinary-") as folder:
        home = Path(folder)
        marks = home / "marks"
        marks.mkdir()
        for path in (agent_path(), Path(__file__).with_name("family.sh")):
            shutil.copy(path, home)
        job = prepare(home, Launch(command=["bash", str(home / "family.sh")], ranks=RANKS))
        for path in [home, *home.rglob("*")]:
            os.chown(path, USER, -1)
        owner = {"user": USER, "extra_groups": []} if os.geteuid() == 0 else {}
        launcher = subprocess.Popen(
            [home / "penstock-agent", "launch", job.directory],
            env={**os.environ, "MARKS": str(marks)},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **owner,  # type: ignore[call-overload]
        )
        found = Running(home, launcher, marks)
        yield found
        end(found)


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
