"""``penstock doctor``: a verdict per line, exit 1 when something is not fit."""

import json
from pathlib import Path

import pytest

from penstock.cli.main import main


def test_json_gives_a_verdict_for_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--directory", str(tmp_path), "--json"]) == 0

    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert {"penstock", "python", "accelerator", "memory", "open files", "/dev/shm", "disk"} <= checks.keys()
    assert {check["verdict"] for check in checks.values()} <= {"ok", "info", "warn"}
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--directory", str(tmp_path / "gone")]) == 1
    captured = capsys.readouterr()
    assert "cannot be written to" in captured.out
    assert "not fit: disk" in captured.err
