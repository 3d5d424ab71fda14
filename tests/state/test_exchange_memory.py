"""Importing and exporting hold a little of a state in memory, however large it is."""

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

STATE_BYTES = 256 << 20
#: Two halves of an import, a reader's two halves, and what the threads that read and write keep for themselves.
LIMIT_BYTES = 0.65 * STATE_BYTES


def test_no_way_in_or_out_holds_the_state(tmp_path: Path) -> None:
    """Goal: bounded memory. Method: the high-water mark that the kernel keeps of a process, against what it held before each step."""
    command = [sys.executable, "-m", "tests.state.exchanging", str(tmp_path), str(STATE_BYTES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["bytes"] >= 0.9 * STATE_BYTES
    assert {what: grown for what, grown in report["grown"].items() if grown > LIMIT_BYTES} == {}
