"""``penstock doctor``: a verdict per line, exit 1 when something is not fit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import main


def test_json_gives_a_verdict_for_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--directory", str(tmp_path), "--json"]) == 0

    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert {"penstock", "python", "accelerator", "memory", "open files", "/dev/shm", "disk"} <= checks.keys()
    assert {check["verdict"] for check in checks.values()} <= {"ok", "info", "warn"}
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_others_can_read_is_warned_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_text("ab" * 32 + "\n")
    monkeypatch.setenv("PENSTOCK_KEY_FILE", str(key))
    found = []
    for mode in (0o644, 0o600):
        key.chmod(mode)
        main(["doctor", "--directory", str(tmp_path), "--json"])
        checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
        found.append(checks["key of hosts"])
    assert (found[0]["verdict"], found[0]["hint"]) == ("warn", f"chmod 600 {key}")
    assert (found[1]["verdict"], found[1]["value"]) == ("ok", str(key))


def test_a_directory_that_is_not_there_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--directory", str(tmp_path / "gone")]) == 1
    captured = capsys.readouterr()
    assert "cannot be written to" in captured.out
    assert "not fit: disk" in captured.err


def test_few_processes_are_warned_about(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "penstock.cli.main", "doctor", "--directory", str(tmp_path), "--json"]
    done = subprocess.run(
        ["prlimit", "--nproc=900:900", "--", *words], capture_output=True, text=True, check=False
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert (checks["processes"]["verdict"], checks["processes"]["value"]) == ("warn", "900 of this user")
    assert "ulimit -u" in checks["processes"]["hint"]
    assert checks["waiting connections"]["verdict"] in ("ok", "info")
