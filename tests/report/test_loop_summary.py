"""A loop that was only observed is a run as far as its steps go: it is listed, shown, reported and compared; what it has not is said (O7)."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.observe.steps import StepRecorder
from penstock.report import ledger
from penstock.report.curves.run_screen import run_screen
from penstock.report.loop_summary import loop_summary
from penstock.view.model.run_summary import condition_of

ROOT = Path(__file__).parents[2]
#: Waits until its rows are on their way.
KILLED = """
import os, signal, sys, time
from pathlib import Path
from tests.report.test_loop_summary import record
record(Path(sys.argv[1]), [3.0] * 5, is_closed=False)
time.sleep(0.5)
os.kill(os.getpid(), signal.SIGKILL)
"""


def record(place: Path, losses: list[float | None], *, life: int = 0, is_closed: bool = True) -> None:
    """One start of one rank."""
    recorder = StepRecorder(place, life, 0)
    for step, loss in enumerate(losses):
        recorder.begin(step)
        with recorder.part("forward"):
            sum(range(20_000))
        if loss is not None:
            recorder.scalar(step, "loss", loss)
        recorder.end(step)
    if is_closed:
        recorder.close()


def test_a_loop_in_a_few_numbers(tmp_path: Path) -> None:
    record(tmp_path, [3.0, 2.0, 1.0])
    record(tmp_path, [2.5, None], life=1)
    summary = loop_summary(tmp_path)
    assert (summary.lives, summary.ranks, summary.last_step, summary.loss) == (2, 1, 1, 2.5)
    assert summary.state == "ended"
    assert summary.at is not None
    record(tmp_path / "mute", [None])
    assert math.isnan(loop_summary(tmp_path / "mute").loss)
    (tmp_path / "empty/steps").mkdir(parents=True)
    assert loop_summary(tmp_path / "empty").last_step == -1


def test_commands_read_its_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses: list[float | None] = [1 / (step + 1) for step in range(200)]
    record(tmp_path / "one", losses)
    record(tmp_path / "two", [*losses[:100], *(loss and loss + 1e-9 for loss in losses[100:])])
    assert main(["runs", "list", str(tmp_path), "--json"]) == 0
    one, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["run"], one["lives"], one["step"], one["loss"], one["state"]) == (
        "one",
        1,
        199,
        0.005,
        "ended",
    )
    assert main(["runs", "show", str(tmp_path / "one"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["newest step"] == 199
    assert main(["report", str(tmp_path / "one"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["speed"]["steps"] == 200
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["first_differing_step"] == 100


@pytest.mark.parametrize(
    "command", [["runs", "prove"], ["runs", "replay", "--step", "1"], ["checkpoint", "list"], ["view"]]
)
def test_what_it_has_not_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    record(tmp_path, [1.0])
    address = f"run:{tmp_path}" if command == ["view"] else str(tmp_path)
    assert main([*command, address]) == 2
    problem = capsys.readouterr().err
    assert "holds the steps of a loop of your own: there is no recipe in it" in problem
    assert "penstock report" in problem


def test_a_loop_that_is_started_again_is_another_one(tmp_path: Path) -> None:
    """Unless it was killed: then its steps are executed again."""
    record(tmp_path / "ended", [3.0] * 5)
    record(tmp_path / "ended", [3.0] * 3, life=1)
    accounts = ledger(tmp_path / "ended")
    assert [life.number for life in accounts.ranks[0].lives] == [1]
    assert accounts.incidents == []
    assert condition_of(run_screen(tmp_path / "ended"), running=False) == "ended"
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed")]
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == -9
    record(tmp_path / "killed", [3.0] * 3, life=1)
    (death,) = ledger(tmp_path / "killed").incidents
    assert (death.kind, death.life, death.lost_steps) == ("death", 0, 5)
