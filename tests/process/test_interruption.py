"""What reaches whom on Ctrl-C, a second one, SIGTERM, SIGHUP, `stop` and `save`; and what stays ignored. Real programs, real signals."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.process.watch.pulse_file import pulses_of
from tests.process.jobs import PATIENCE_S, PENSTOCK, Running, is_alive, penstock, wait_until

Run = Callable[..., Running]
MARK = "import os, pathlib, signal, sys, time, atexit\nmarks = pathlib.Path(os.environ['MARKS'])\n"
#: What people write for torchrun: save when interrupted, clean up whatever happens.
SAVER = (
    MARK
    + """
note = lambda name: (marks / f"{name}-{os.environ['RANK']}").touch()
atexit.register(note, "atexit")
try:
    (marks / f"{os.getpid()}.pid").touch()
    while True:
        time.sleep(0.01)
except KeyboardInterrupt:
    note("saved")
    raise
finally:
    note("finally")
"""
)
#: Listens, saves for a second and a half when told, and notes every exception that it did not ask for.
LISTENER = (
    MARK
    + """
from penstock.process import phase, pulse
signal.signal(signal.SIGINT, lambda *_: (marks / "interrupted").touch())
(marks / f"{os.getpid()}.pid").touch()
step = 0
while True:
    step += 1
    told = pulse(step)
    if told is not None and told.kind == "save" and not (marks / "asked").exists():
        (marks / "asked").write_text(told.reason)
    if told is not None and told.kind == "stop":
        with phase("checkpoint"):
            (marks / "saving").touch()
            time.sleep(float(os.environ["SAVE_S"]))
            (marks / "saved").write_text(f"{told.save_by - told.leave_by:.0f}")
        sys.exit(75)
    time.sleep(0.005)
"""
)


def marks_of(running: Running) -> set[str]:
    return {path.name for path in running.marks.iterdir() if path.suffix != ".pid"}


@pytest.mark.parametrize("how", ["executed", "forked"])
def test_ctrl_c_is_keyboard_interrupt_and_the_person_hears_at_once_what_happens(
    run: Run, tmp_path: Path, how: str
) -> None:
    """Goal: what runs under torchrun on Ctrl-C runs here: except, finally, atexit. Method: a program made for that, in two ranks."""
    script = tmp_path / "saver.py"
    script.write_text(SAVER)
    zygote = "always" if how == "forked" else "never"
    running = run("--ranks", "2", "--zygote", zygote, "--", str(script))
    running.pids(2)
    assert running.launcher is not None
    running.launcher.send_signal(signal.SIGINT)
    _, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert marks_of(running) == {f"{what}-{rank}" for what in ("saved", "finally", "atexit") for rank in "01"}
    assert running.launcher.returncode == 130
    assert b"stopping: ranks have 10 s (saving: 5 min); Ctrl-C again kills\n" in err
    assert [worker["exit"]["signal"] for _, worker in running.state().workers] == [signal.SIGINT] * 2


def test_a_wrapper_and_what_it_runs_are_interrupted_together(run: Run, tmp_path: Path) -> None:
    """Goal: as on a terminal, the process group. Method: a shell script whose Python has to hear it."""
    script = tmp_path / "saver.py"
    script.write_text(SAVER)
    running = run("--", "bash", "-c", f"{sys.executable} {script}; echo after")
    running.pids(1)
    assert running.launcher is not None
    running.launcher.send_signal(signal.SIGINT)
    running.launcher.communicate(timeout=PATIENCE_S)
    assert marks_of(running) == {"saved-0", "finally-0", "atexit-0"}


def test_a_rank_that_saves_has_until_its_save_is_over_and_no_longer(run: Run, tmp_path: Path) -> None:
    """Goal: no signal into a save. Method: a save of 1.5 s with a grace of 0.6 s; then the same with a limit of 0.3 s for saves."""
    script = tmp_path / "listener.py"
    script.write_text(LISTENER)
    patient = run("--grace", "0.6", "--", sys.executable, str(script), environment={"SAVE_S": "1.5"})
    short = run(
        "--grace",
        "0.6",
        "--grace-save",
        "0.3",
        "--",
        sys.executable,
        str(script),
        environment={"SAVE_S": "60"},
    )
    for running in (patient, short):
        running.pids(1)
        wait_until(lambda running=running: pulses_of(running.job), "the rank pulses")  # type: ignore[misc]
        assert running.launcher is not None
        running.launcher.send_signal(signal.SIGINT)
    for running in (patient, short):
        assert running.launcher is not None
        running.launcher.communicate(timeout=PATIENCE_S)
    assert marks_of(patient) == {"saving", "saved"}
    assert (patient.marks / "saved").read_text() == "300"
    assert patient.state().workers[0][1]["exit"]["code"] == 75
    assert "saved" not in marks_of(short)
    assert short.job.phase() == "stopped"


def test_signals_that_come_twice_at_once_are_one_wish(run: Run, tmp_path: Path) -> None:
    """Goal: `timeout` signals the launcher and then its group; that is no second Ctrl-C. Method: the real program, and a slow saver."""
    script = tmp_path / "listener.py"
    script.write_text(LISTENER)
    marks = tmp_path / "marks"
    marks.mkdir()
    variables = {**os.environ, "PENSTOCK_HOME": str(tmp_path / "home"), "MARKS": str(marks), "SAVE_S": "1"}
    done = subprocess.run(
        ["timeout", "--signal=TERM", "8", *PENSTOCK, "run", "--", sys.executable, str(script)],
        env=variables,
        capture_output=True,
        timeout=60,
    )
    assert (marks / "saved").exists(), done.stderr
    assert b"SIGTERM again kills" in done.stderr


def test_a_signal_that_was_ignored_at_the_start_stays_ignored(run: Run, tmp_path: Path) -> None:
    """Goal: `nohup penstock run … &` outlives its session. Method: the real `nohup` in the background of a shell that ends; SIGHUP and
    SIGINT for launcher, keeper, agent and rank, and all of them go on."""
    home, marks = tmp_path / "home", tmp_path / "home" / "marks"
    marks.mkdir(parents=True)
    command = [*PENSTOCK, "run", "--", "bash", "-c", "touch $MARKS/$$.pid; sleep 1000 & wait"]
    shell = f"nohup {shlex.join(command)} > {home}/out 2>&1 & echo $!"
    variables = {**os.environ, "PENSTOCK_HOME": str(home), "MARKS": str(marks)}
    # A shell without a terminal starts background jobs with SIGINT and SIGQUIT ignored.
    started = subprocess.run(["sh", "-c", shell], env=variables, capture_output=True, text=True, timeout=60)
    launcher = int(started.stdout)
    running = Running(home, None, marks)
    (rank,) = running.pids(1)
    state = running.state()
    for pid in (launcher, state.keeper, state.agent, rank):
        for signum in (signal.SIGHUP, signal.SIGINT):
            ignored = int(
                next(
                    line.split()[1]
                    for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                    if line.startswith("SigIgn")
                ),
                16,
            )
            assert ignored >> (signum - 1) & 1, (pid, signum)
            os.kill(pid, signum)
    try:
        assert penstock(home, "jobs", "--json").returncode == 0
        assert running.job.phase() == "running"
        assert all(map(is_alive, (launcher, state.keeper, state.agent, rank)))
        os.kill(launcher, signal.SIGTERM)
        running.wait_phase("stopped")
    finally:
        if is_alive(launcher):
            os.kill(launcher, signal.SIGKILL)
        wait_until(lambda: not is_alive(rank), "nobody is left")


def test_save_asks_ranks_that_listen_and_they_go_on(run: Run, tmp_path: Path) -> None:
    """Goal: a checkpoint now. Method: one job that listens and one that does not; the command says which is which."""
    script = tmp_path / "listener.py"
    script.write_text(LISTENER)
    running = run("--", sys.executable, str(script), environment={"SAVE_S": "0"})
    deaf = run("--", "bash", "-c", "touch $MARKS/$$.pid; sleep 1000")
    (rank,) = running.pids(1)
    deaf.pids(1)
    wait_until(lambda: pulses_of(running.job), "the rank pulses")
    done = penstock(running.home, "save", running.job.id)
    assert done.returncode == 0, done.stderr
    assert (running.marks / "asked").read_text() == "`penstock save`"
    assert is_alive(rank)
    assert running.job.phase() == "running"
    assert running.journal("save")
    unheard = penstock(deaf.home, "save", deaf.job.id)
    assert unheard.returncode == 1
    assert "none of its ranks listens for notices" in unheard.stderr


@pytest.mark.parametrize("how", ["stopped", "removed", "both"])
def test_stop_with_force_ends_a_job_whose_agent_does_not_answer(run: Run, tmp_path: Path, how: str) -> None:
    """Goal: there is always a way to end a job. Method: keeper and agent are stopped, or the directory is gone; a family that is hard
    to end, and another job that nobody touches."""
    family = [sys.executable, str(Path(__file__).with_name("family.py"))]
    other = run("--detach", "--", *family)
    running = run("--detach", "--no-cgroup", "--ranks", "2", "--", *family)
    others, pids = other.pids(5), running.pids(10)
    state, directory = running.state(), running.job.directory
    if how != "removed":
        os.kill(state.keeper, signal.SIGSTOP)
        os.kill(state.agent, signal.SIGSTOP)
    if how != "stopped":
        directory.rename(tmp_path / "away")

    done = penstock(running.home, "stop", "--force", directory.name)

    assert done.returncode == 0, done.stderr
    assert not any(map(is_alive, [*pids, state.keeper, state.agent]))
    assert all(map(is_alive, others))
    if how == "stopped":
        assert running.job.phase() == "stopped"
        assert "its agent did not answer" in running.state().reason


def test_a_job_without_a_directory_stops_orderly_too(run: Run, tmp_path: Path) -> None:
    running = run(
        "--detach",
        "--",
        "bash",
        "-c",
        "trap 'touch $MARKS/orderly; exit 0' TERM; touch $MARKS/$$.pid; while :; do sleep 0.02; done",
    )
    (rank,) = running.pids(1)
    state = running.state()
    running.job.directory.rename(tmp_path / "away")

    done = penstock(running.home, "stop", running.job.id)

    assert done.returncode == 0, done.stderr
    assert "its directory is gone" in done.stderr
    assert (running.marks / "orderly").exists()
    assert not any(map(is_alive, (rank, state.agent, state.keeper)))


def test_a_second_ctrl_c_ends_a_job_whose_agent_is_stuck(run: Run) -> None:
    """Goal: a person at a terminal needs no other command. Method: keeper and agent are stopped."""
    running = run("--no-cgroup", "--", sys.executable, str(Path(__file__).with_name("family.py")))
    pids, state = running.pids(5), running.state()
    for pid in (state.keeper, state.agent):
        os.kill(pid, signal.SIGSTOP)
    assert running.launcher is not None
    running.launcher.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        running.launcher.wait(1.0)
    running.launcher.send_signal(signal.SIGINT)
    running.launcher.wait(PATIENCE_S)
    assert not any(map(is_alive, [*pids, state.keeper, state.agent]))
