"""The wheel holds everything and works where there is no compiler and no checkout."""

import subprocess
import sys
from pathlib import Path


def test_the_wheel_installs_into_a_clean_environment_and_passes_its_smoke_test(
    root: Path, tmp_path: Path
) -> None:
    """Built with the profile that the tests compiled already; `make wheel` builds the optimised one the same way."""
    command = [sys.executable, str(root / "workshop/wheel.py"), "--profile", "dev", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installs and runs in a clean environment" in done.stdout
