"""Real runs that reports are made of."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.torch.stream import make_stream


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run for each case of ``tests/report/slow_runs.py``."""
    stream = make_stream(tmp_path_factory.mktemp("stream"))
    folder = tmp_path_factory.mktemp("planted")
    done = subprocess.run(
        [sys.executable, "-m", "tests.report.slow_runs", str(stream.folder), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
