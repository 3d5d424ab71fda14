"""Hugging Face's Trainer is observed like any loop: rows, a report that names what is slow, and the same bits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.observe.steps import UNMEASURED, read_steps
from tests.conftest import ROOT
from tests.torch.observed_trainer import (
    ACCUMULATED,
    EVAL_EVERY,
    EVAL_S,
    EVERY,
    LENGTH,
    ROWS,
    SAVE_EVERY,
    SLEEP_S,
    STEPS,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trainer")
    words = [sys.executable, "-m", "tests.torch.observed_trainer", str(out)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_step_of_a_trainer_is_a_row_with_its_parts(run: Path) -> None:
    """Goal: the rows of a run, O8. Method: a real Trainer with accumulation, logs, evaluations and saves."""
    (rows,) = read_steps(run)
    columns = rows.columns
    assert columns["step"].tolist() == list(range(STEPS))
    assert rows.is_closed
    for part in ("data", "forward", "backward", "optimizer", "user"):
        assert (columns[f"host.{part}"] > 0).all(), part
    assert columns["tokens"].tolist() == [ROWS * LENGTH * ACCUMULATED] * STEPS
    # What Trainer does after a step is in the row of the next one.
    evaluated = [step for step in range(STEPS) if columns["host.eval"][step] > EVAL_S * 1e9]
    assert evaluated == list(range(EVAL_EVERY, STEPS, EVAL_EVERY))
    saved = [step for step in range(STEPS) if columns["host.checkpoint"][step] > 0]
    assert saved == [SAVE_EVERY]
    assert rows.commits == [SAVE_EVERY, STEPS]
    losses = columns["scalar.loss"]
    assert [step for step in range(STEPS) if losses[step] != UNMEASURED] == [3, 7, 11, 15, 19]
    assert columns["scalar.learning_rate"][3] > columns["scalar.learning_rate"][7] > 0
    assert columns["scalar.eval_loss"][EVAL_EVERY - 1] > 0


def test_the_report_of_a_trainer_names_a_planted_sleep(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: the first line has cause, place and cost. Method: a callback that sleeps at every fifth step."""
    assert main(["report", str(run), "--json"]) == 0
    diagnosis = json.loads(capsys.readouterr().out)["diagnosis"]
    assert diagnosis["causes"][0]["kind"] == "own_code"
    # Where the machine held up another step as well, steps are counted instead.
    assert f"every {EVERY}th step" in diagnosis["line"] or f"of {STEPS} steps" in diagnosis["line"]
    assert "observed_trainer.py" in diagnosis["line"]
    assert "`pause(SLEEP_S)`" in diagnosis["line"]
    planted = SLEEP_S * (STEPS // EVERY)
    assert diagnosis["causes"][0]["cost_ns"] / 1e9 == pytest.approx(planted, rel=0.3)
