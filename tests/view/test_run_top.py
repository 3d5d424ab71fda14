"""``penstock top`` of runs: the numbers of the report, in a pipe, as JSON and in a real terminal of any size."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.report.curves.live_screen import REST_TIMES, LiveScreen
from penstock.report.curves.run_screen import run_screen
from tests.process.jobs import wait_until
from tests.view.run_exhibit import STEPS
from tests.view.terminals import Terminal

TOP = [sys.executable, "-m", "penstock.cli.main", "top"]
ENV = {"TERM": "xterm-256color"}
#: Steps until it is told to stop.
ENDLESS = """
import sys
from pathlib import Path
from penstock.run import Policy
from penstock.state.ranks.clock import Clock
from tests.run.small import make, start, update
from tests.torch.stream import Stream
place = Path(sys.argv[1])
run, state = make(Stream(place), place / "runs/live", Policy()), start()
for step, batch in run.steps(state):
    loss, change = update(run, state, batch)
    state["weights"] += change
    Clock().pause(0.01)
    run.report(loss=loss)
    if (place / "stop").exists():
        break
"""


def top(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PENSTOCK_HOME": str(folder / "home")}
    return subprocess.run(
        [*TOP, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def terminal(folder: Path, *words: str, columns: int = 80, rows: int = 24) -> Terminal:
    """A terminal in which runs are watched from their folder."""
    return Terminal(
        ["env", "-C", str(folder), *TOP, *words],
        columns=columns,
        rows=rows,
        env={**ENV, "PENSTOCK_HOME": str(folder / "home")},
    )


def test_in_a_pipe_there_is_a_table_and_the_diagnosis_of_every_run(runs_folder: Path) -> None:
    done = top(runs_folder, "runs/slow", "run:runs/bare", "counted")

    assert (done.returncode, done.stderr) == (0, "")
    heads, *rows = done.stdout.splitlines()
    assert heads.split() == [
        "run",
        "state",
        "step",
        "loss",
        "tokens/s",
        "MFU",
        "goodput",
        "p50",
        "p99",
        "memory",
    ]
    assert [row.split()[:3] for row in rows[:3]] == [
        ["slow", "ended", str(STEPS - 1)],
        ["bare", "ended", "5"],
        ["counted", "ended", "39"],
    ]
    for name, row in zip(("slow", "bare", "counted"), rows[3:], strict=True):
        assert row == f"{name}: {run_screen(runs_folder / 'runs' / name).report.diagnosis.line}"


def test_in_a_terminal_of_80_by_24_there_is_everything_and_keys_choose(runs_folder: Path) -> None:
    """Goal: works over ssh. Method: a real terminal, its screen, the keys for run, curve, map and overlay, then q."""
    with terminal(runs_folder, "runs/slow", "runs/counted") as shown:
        shown.wait_for("q quit")
        assert len(shown.lines) == 24
        text = "\n".join(shown.lines)
        assert run_screen(runs_folder / "runs/slow").report.diagnosis.line[:60] in text
        assert "rank × step: step_time" in text
        assert any("\u2801" <= sign <= "\u28ff" for sign in text)
        assert "▸ slow" in text
        shown.press("\x1b[B")
        shown.wait_for("▸ counted")
        assert "MFU" in "\n".join(shown.lines)
        shown.press("\x1b[C")
        shown.wait_for("step time")
        shown.press("m")
        shown.wait_for("rank × step: tokens")
        shown.press("o")
        shown.press("1")
        shown.wait_for("▸ slow")
        shown.resize(140, 50)
        shown.wait_for("goodput so far")
        shown.press("q")
        assert shown.wait_for_end() == 0


@pytest.mark.parametrize(("columns", "rows"), [(20, 5), (10, 2), (40, 8), (300, 90)])
def test_a_terminal_of_any_size_has_no_more_lines_than_fit(
    runs_folder: Path, columns: int, rows: int
) -> None:
    with terminal(runs_folder, "runs/slow", "runs/bare", columns=columns, rows=rows) as shown:
        shown.wait_for("run")
        shown.press("q")
        assert shown.wait_for_end() == 0


@pytest.mark.parametrize(("end", "state"), [("stop", "ended"), ("kill", "silent")])
def test_a_run_that_trains_is_seen_to_go_on_until_it_ends(
    runs_folder: Path, tmp_path: Path, end: str, state: str
) -> None:
    """Goal: live. Method: a real run; objects for each refresh; its steps grow, it ends or is killed, and then the command ends."""
    shutil.copytree(
        runs_folder, tmp_path, ignore=shutil.ignore_patterns("runs", "empty", "home"), dirs_exist_ok=True
    )
    (tmp_path / "live.py").write_text(ENDLESS)
    root = Path(__file__).parents[2]
    training = subprocess.Popen(
        [sys.executable, str(tmp_path / "live.py"), str(tmp_path)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    wait_until(lambda: any((tmp_path / "runs/live/taps").glob("*")), "it trains", timeout_s=60)
    words = [*TOP, "runs/live", "--json", "--every", "0.1"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        objects: list[dict[str, Any]] = []
        while len({one["step"] for one in objects}) < 3:
            objects.append(json.loads(watching.stdout.readline())["runs"][0])
        if end == "kill":
            training.kill()
        (tmp_path / "stop").touch()
        assert training.wait(60) == (0 if end == "stop" else -signal.SIGKILL)
        objects += [json.loads(line)["runs"][0] for line in watching.stdout]
        assert watching.wait(60) == 0
    steps = [one["step"] or 0 for one in objects]
    assert steps == sorted(steps)
    assert objects[0]["state"] == "running"
    assert objects[-1]["state"] == state


def test_what_cannot_be_watched_is_refused(runs_folder: Path) -> None:
    for words, says in (
        (["empty"], "there is no run in empty"),
        (["run:nowhere"], "there is no run in run:nowhere"),
        (["runs/nowhere"], "there is no run in runs/nowhere"),
        (["nowhere"], "there is no job 'nowhere'"),
        (["runs/slow", "--every", "0"], "--every must be seconds"),
        (["slow"] * 3 + ["runs/slow"] * 30, "at most 32 runs"),
    ):
        done = top(runs_folder, *words)
        assert done.returncode == 2
        assert says in done.stderr


def test_a_run_that_cannot_be_read_any_more_keeps_what_was_known(runs_folder: Path, tmp_path: Path) -> None:
    """Goal: one damaged run does not take the others along. Method: the journal of one of two is overwritten."""
    for name in ("good", "bad"):
        shutil.copytree(runs_folder / "runs/bare", tmp_path / "runs" / name)
    for file in (tmp_path / "runs/bad/journal").iterdir():
        file.write_bytes(b"\x00\xff not a journal\n" * 3)
    done = top(tmp_path, "good", "bad", "--once")

    assert done.returncode == 1
    assert "good: no diagnosis" in done.stdout
    assert "bad: " in done.stdout.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_large_run_is_computed_for_a_twentieth_of_the_time(runs_folder: Path, tmp_path: Path) -> None:
    """Goal: bounded work. Method: a clock that the test turns; a computation that takes 2 s of it is not repeated for 38 s."""
    shutil.copytree(runs_folder / "runs/bare", tmp_path / "bare")
    now = [100.0]

    def read(path: Path) -> object:
        now[0] += 2.0
        return run_screen(path)

    live = LiveScreen(tmp_path / "bare", clock=lambda: now[0], read=read)  # type: ignore[arg-type]
    first = live.look()
    assert live.look() is first
    with next((tmp_path / "bare/journal").iterdir()).open("ab") as file:
        file.write(b'{"at":1.0,"kind":"note","incarnation":0,"facts":{}}\n')
    now[0] += 2.0 * REST_TIMES - 0.1
    assert live.look() is first
    now[0] += 0.2
    assert live.look() is not first
