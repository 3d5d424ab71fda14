"""The examples of runs work as they are shown, and can be read at one sight."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.run import records
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples/runs"
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
#: How each is started; `train_fsdp` is started by `elastic`.
COMMANDS = {
    "by_hand": [sys.executable],
    "elastic": [sys.executable],
    "resume": [sys.executable],
    "spike": [sys.executable],
    "train_gpt": [*PENSTOCK, "run", "--ranks", "4", "--", sys.executable],
    "train_jax": [sys.executable],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples work; the corpus is made once."""
    made = tmp_path_factory.mktemp("examples")
    run(made, [sys.executable, str(EXAMPLES / "corpus.py")])
    return made


def run(folder: Path, command: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}", "PENSTOCK_HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_example_runs(folder: Path, name: str) -> None:
    assert run(folder, [*COMMANDS[name], str(EXAMPLES / f"{name}.py")])
    if name == "train_gpt":
        steps = records.read(folder / "runs/gpt")
        assert [len(each.ranks) for each in steps.values()] == [4] * 30


def test_every_example_is_short_and_tried() -> None:
    parts = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert [name for name, lines in parts.items() if lines > 100] == []
    assert sorted({*parts} - {*COMMANDS}) == ["corpus", "gpt", "train_fsdp"]
