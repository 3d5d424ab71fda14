"""Starts programs of tests that fork gangs of their own, so that none of them imports torch twice."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

TIMEOUT_S = 300


def run_program(name: str, out: Path) -> None:
    """Run ``tests.torch.NAME`` to its end; what it asserts by itself is a part of the test."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.torch.{name}", str(out)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
