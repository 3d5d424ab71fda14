"""Real jobs that pulse: hangs are seen, witnessed and ended; what only takes long is not; notices come before signals."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.process import pulses_of
from penstock.process.stacks import collect, collect_by_agent
from tests.process.jobs import PATIENCE_S, Running, penstock, wait_until

Run = Callable[..., Running]
#: Makes some quick steps; then rank 1 of the first life does what is asked for and the others wait for it.
STEPS = """
import os, signal, sys, threading, time
from penstock.process import notice, phase, pulse
rank, life = int(os.environ['RANK']), int(os.environ['PENSTOCK_INCARNATION'])
pace = threading.Event()
def steps(count):
    for step in range(count):
        pulse(step)
        pace.wait(0.005)
def wait_for_the_others():
    threading.Event().wait()
"""
HANGS = {
    "holds-the-gil": "def hang():\n    import re; re.match('(a|a)*$', 'a' * 40 + 'b')\n",
    "in-c": "def hang():\n    import ctypes; ctypes.PyDLL(None).sleep(1000)\n",
}


def script(folder: Path, text: str) -> str:
    """A file to run."""
    path = folder / "train.py"
    path.write_text(STEPS + text)
    return str(path)


def incident(running: Running, number: int = 0) -> dict[str, Any]:
    """What was written about a failure."""
    document: dict[str, Any] = json.loads(
        (running.job.directory / "incidents" / f"{number}.json").read_text()
    )
    return document


@pytest.mark.parametrize("how", sorted(HANGS))
def test_a_hang_is_seen_its_stacks_are_kept_and_the_gang_restarts(run: Run, tmp_path: Path, how: str) -> None:
    """Goal: liveness by progress. Method: one of three ranks stops making steps; the others wait for it."""
    text = HANGS[how] + ("steps(30)\nif life == 0:\n    hang() if rank == 1 else wait_for_the_others()\n")
    words = ["--ranks", "3", "--restarts", "1", "--hang", "0.5", "--", script(tmp_path, text)]
    running = run(*words)
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=60)
    assert running.launcher.returncode == 0, err
    about = incident(running)
    assert (about["cause"], about["step"], about["rank"]) == ("hang", 29, 1)
    assert "no step for" in about["first_cause"]
    groups = {tuple(rank for _, rank in group["workers"]): group for group in about["stacks"]["groups"]}
    assert set(groups) == {(1,), (0, 2)}
    functions = [frame["function"] for frame in groups[1,]["threads"][0]["frames"]]
    assert "hang" in functions
    assert "wait_for_the_others" in str(groups[0, 2]["threads"])
    assert {rank["rank"]: rank["pulse"]["step"] for rank in about["ranks"]} == {0: 29, 1: 29, 2: 29}
    assert running.state().incarnation == 1


def test_a_hang_in_a_namespace_of_processes_has_stacks_too(run: Run, tmp_path: Path) -> None:
    """Goal: numbers of processes differ inside and outside. Method: the agent takes stacks inside, `penstock stacks` outside."""
    text = "steps(30)\nwait_for_the_others() if life == 0 else None\n"
    running = run("--ranks", "2", "--restarts", "1", "--isolate", "--hang", "3", "--", script(tmp_path, text))
    wait_until(lambda: len(_known(running)) == 2, "both ranks pulse")
    wait_until(
        lambda: "wait_for_the_others" in penstock(running.home, "stacks", running.job.id).stdout, "seen"
    )
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=60)
    assert running.launcher.returncode == 0, err
    assert "wait_for_the_others" in str(incident(running)["stacks"]["groups"])


def test_a_long_checkpoint_is_no_hang(run: Run, tmp_path: Path) -> None:
    """Goal: phases have times of their own. Method: a checkpoint that takes many times what a step may take."""
    text = "steps(30)\nwith phase('checkpoint'):\n    pace.wait(4)\nsteps(30)\n"
    running = run("--ranks", "2", "--hang", "1", "--", script(tmp_path, text))
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert running.launcher.returncode == 0, err
    assert running.state().incidents == []


def test_silence_is_a_hang_of_ranks_that_do_not_pulse(run: Run) -> None:
    code = "echo begun; [ $PENSTOCK_INCARNATION = 1 ] || exec sleep 1000"
    running = run("--restarts", "1", "--silence", "0.5", "--", "bash", "-c", code)
    assert running.launcher is not None
    _, err = running.launcher.communicate(timeout=60)
    assert running.launcher.returncode == 0, err
    about = incident(running)
    assert "silent for" in about["first_cause"]
    (group,) = about["stacks"]["groups"]
    assert group["kernel"]["command"].startswith("sleep 1000")


def test_a_stop_is_a_notice_first_and_who_leaves_in_time_sees_no_signal(run: Run, tmp_path: Path) -> None:
    """Goal: save now, leave by. Method: SIGTERM would be shown; the ranks leave at the notice."""
    text = (
        "signal.signal(signal.SIGTERM, lambda *_: print('SIGTERM', flush=True))\n"
        "step = 0\n"
        "while (told := pulse(step)) is None:\n"
        "    step += 1\n    pace.wait(0.005)\n"
        "print(told.kind, told.reason, 5 < told.remaining_s <= 21, flush=True)\n"
    )
    running = run("--ranks", "2", "--grace", "30", "--detach", "--", script(tmp_path, text))
    wait_until(lambda: len(_known(running)) == 2, "both ranks pulse")
    stopped = penstock(running.home, "stop", running.job.id)
    assert stopped.returncode == 0, stopped.stderr
    assert running.state().phase == "stopped"
    for rank in range(2):
        said = (running.job.directory / "logs" / f"rank-{rank}.stdout").read_text()
        assert said == "stop stop asked for by `penstock stop` True\n"


def test_who_does_not_heed_notices_gets_sigterm_at_once(run: Run, tmp_path: Path) -> None:
    text = "step = 0\nwhile True:\n    pulse(step, heed=False)\n    step += 1\n    pace.wait(0.005)\n"
    running = run("--grace", "1000", "--detach", "--", script(tmp_path, text))
    wait_until(lambda: len(_known(running)) == 1, "the rank pulses")
    assert penstock(running.home, "stop", running.job.id).returncode == 0
    exits = [worker["exit"] for _, worker in running.state().workers]
    assert [ending["signal"] for ending in exits] == [signal.SIGTERM]


def test_steps_of_a_new_life_are_its_own(run: Run, tmp_path: Path) -> None:
    """Goal: P3 for pulses. Method: the first life dies at step 29; the second makes none."""
    text = "steps(30) if life == 0 else None\nif life == 0:\n    os.kill(os.getpid(), 9)\nwait_for_the_others()\n"
    running = run("--restarts", "1", "--detach", "--", script(tmp_path, text))
    wait_until(lambda: running.state().incarnation == 1, "it is started again")
    assert incident(running)["step"] == 29
    wait_until(lambda: any(worker["pid"] > 0 for _, worker in running.state().workers), "it runs")
    assert _known(running) == {}


def test_stacks_and_the_agents_own_python_agree(run: Run, tmp_path: Path) -> None:
    """Goal: `penstock stacks`. Method: the command, on ranks that wait in different functions."""
    text = "pulse(0)\n(threading.Event().wait if rank == 2 else wait_for_the_others)()\n"
    running = run("--ranks", "4", "--detach", "--", script(tmp_path, text))
    wait_until(lambda: len(_known(running)) == 4, "all ranks pulse")

    wait_until(lambda: len(collect(running.job).groups) == 2, "all of them wait")
    answer = json.loads(penstock(running.home, "stacks", running.job.id, "--json").stdout)
    odd, rest = answer["groups"]
    assert odd["workers"] == [["rank", 2]]
    assert rest["workers"] == [["rank", 0], ["rank", 1], ["rank", 3]]
    one, many = ([frame["function"] for frame in group["threads"][0]["frames"]] for group in (odd, rest))
    assert "wait_for_the_others" in many
    assert "wait_for_the_others" not in one
    by_agent = collect_by_agent(running.job, frozenset({1, 2}))
    assert by_agent is not None
    assert [group.names for group in by_agent.groups] == ["rank 1", "rank 2"]
    assert [frame.function for frame in by_agent.groups[1].threads[0].frames] == one
    text = penstock(running.home, "stacks", running.job.id, "--rank", "0-1,3").stdout
    assert text.startswith("rank 0-1,3  (3 of 3): sleeps")
    refused = penstock(running.home, "stacks", running.job.id, "--rank", "x")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        2,
        "error: --rank must be as in 0-3,8, got x",
    )


def _known(running: Running) -> dict[tuple[str, int], Any]:
    return {worker: pulse for worker, pulse in pulses_of(running.job).items() if pulse.steps > 0}


#: Where this is writable, a process can be made to sleep in the kernel for real; nothing else makes one that SIGKILL does not end.
FREEZER = Path("/sys/fs/cgroup/freezer")
if os.access(FREEZER, os.W_OK):

    @pytest.fixture
    def freezer(tmp_path: Path) -> Iterator[Path]:
        """A control group whose processes can be frozen."""
        group = FREEZER / f"penstock-test-{os.getpid()}"
        group.mkdir()
        yield group
        (group / "freezer.state").write_text("THAWED")
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "those that were killed are gone")
        group.rmdir()

    def test_a_rank_that_sleeps_in_the_kernel_is_declared_and_does_not_hold_the_job(
        run: Run, tmp_path: Path, freezer: Path
    ) -> None:
        """Goal: D-state. Method: a rank is frozen by its control group, where SIGKILL does not reach it, and its peer fails."""
        text = (
            "steps(30)\nif life == 0 and rank == 1:\n"
            "    open(f'{os.environ[\"FREEZER\"]}/cgroup.procs', 'w').write(str(os.getpid()))\n"
            "    open(f'{os.environ[\"FREEZER\"]}/freezer.state', 'w').write('FROZEN')\n"
            "elif life == 0:\n"
            "    while open(f'{os.environ[\"FREEZER\"]}/freezer.state').read().strip() != 'FROZEN':\n"
            "        pace.wait(0.05)\n"
            "    sys.exit(3)\n"
        )
        words = ["--ranks", "2", "--restarts", "1", "--no-cgroup", "--", script(tmp_path, text)]
        running = run(*words, environment={"FREEZER": str(freezer)})
        assert running.launcher is not None
        _, err = running.launcher.communicate(timeout=60)
        assert running.launcher.returncode == 0, err
        about = incident(running)
        assert "processes sleep in the kernel and cannot be killed" in about["reason"]
        (line,) = about["kernel"]
        assert line.startswith("rank 1 (process ")
        assert "is in state D" in line
