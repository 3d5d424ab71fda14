"""The examples of runs work as they are shown, and can be read at one sight."""

import difflib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.run.journal import journal, metrics
from penstock.run.journal import step_records as records
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples/runs"
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
#: How each is started; `train_fsdp` is started by `elastic`, `nanogpt_after` by a test of its own.
COMMANDS = {
    "by_hand": [sys.executable],
    "elastic": [sys.executable],
    "hf_trainer": [sys.executable],
    "lightning_like": [sys.executable],
    "nanogpt_before": [sys.executable],
    "resume": [sys.executable],
    "spike": [sys.executable],
    "train_gpt": [*PENSTOCK, "run", "--ranks", "4", "--", sys.executable],
    "train_jax": [sys.executable],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples work; the corpus is made once."""
    place = tmp_path_factory.mktemp("examples")
    run(place, [sys.executable, str(EXAMPLES / "corpus.py")])
    return place


def environment_of(folder: Path) -> dict[str, str]:
    # The models are so small that a second thread costs more than it does.
    settings = {
        "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
        "PENSTOCK_HOME": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    return {**os.environ, **settings}


def run(folder: Path, command: list[str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment_of(folder), capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_example_runs(folder: Path, name: str) -> None:
    assert run(folder, [*COMMANDS[name], str(EXAMPLES / f"{name}.py")])
    if name == "train_gpt":
        steps = records.read(folder / "runs/gpt")
        assert [len(record.ranks) for record in steps.values()] == [4] * 30


def test_every_example_is_short_and_tried() -> None:
    parts = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert [name for name, lines in parts.items() if lines > 100] == []
    assert sorted({*parts} - {*COMMANDS}) == [
        "corpus",
        "gpt",
        "nanogpt_after",
        "nanogpt_data",
        "train_fsdp",
    ]


def test_the_moved_script_that_was_killed_is_bit_equal_and_keeps_its_best(
    folder: Path, tmp_path: Path
) -> None:
    """Goal: R1 for a script in nanoGPT's habits: accumulation, a scaler, evaluations. Method: one run in one piece, one that is
    killed after its first checkpoint and started again; records of all steps, evaluations and kept checkpoints are compared."""
    command = [sys.executable, str(EXAMPLES / "nanogpt_after.py")]
    undisturbed = subprocess.Popen(command, cwd=folder, env=environment_of(folder))
    killed = subprocess.Popen(command, cwd=tmp_path, env=environment_of(tmp_path), stdout=subprocess.PIPE)
    moved = tmp_path / "runs/nanogpt"
    assert killed.stdout is not None
    for _ in killed.stdout:  # a line at every evaluation
        if any(entry.kind == "commit" and entry.step > 0 for entry in journal.read(moved)):
            break
    assert killed.poll() is None
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    run(tmp_path, command)
    assert undisturbed.wait(280) == 0

    whole = folder / "runs/nanogpt"
    by_place = {place: records.read(place) for place in (whole, moved)}
    assert list(by_place[whole]) == list(by_place[moved]) == list(range(20))
    assert {record.incarnation for record in by_place[moved].values()} == {0, 1}
    bits = [
        [
            (record.batch, rank.loss_bits, rank.parameters)
            for record in steps.values()
            for rank in record.ranks.values()
        ]
        for steps in by_place.values()
    ]
    assert bits[0] == bits[1]
    evaluated = [evaluations(place) for place in (whole, moved)]
    assert evaluated[0] == evaluated[1]
    assert list(evaluated[0]) == [5, 10, 15, 20]
    best = min(evaluated[0], key=evaluated[0].__getitem__)
    for place in (whole, moved):
        kept = ps.Checkpoints(place / "checkpoints").list()
        assert [checkpoint.step for checkpoint in kept] == sorted({best, 20})
        assert [checkpoint.metrics["val_loss"] for checkpoint in kept] == [
            evaluated[0][checkpoint.step] for checkpoint in kept
        ]


def evaluations(place: Path) -> dict[int, float]:
    """Values by the number of steps that the model had then."""
    return {entry.step + 1: entry.values["val_loss"] or 0.0 for entry in metrics.read(place)}


def test_the_guide_shows_the_difference_between_the_script_and_the_moved_one() -> None:
    """Goal: what the page calls the difference is that of the files that are run. Method: compute it."""
    before, after = (
        (EXAMPLES / f"nanogpt_{when}.py").read_text().splitlines() for when in ("before", "after")
    )
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    difference = "\n".join(line for line in lines if not line.startswith("@@"))
    shown = re.findall(
        r"^```diff\n(.*?)\n```$", (ROOT / "docs/guide/train.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert shown == [difference], f"docs/guide/train.md has to show:\n{difference}"
