"""``penstock demo`` runs as a person would run it and stands by what it shows."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_the_demo_holds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "demo", "--json"]
    variables = {**os.environ, "PENSTOCK_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=variables)
    assert done.returncode == 0, done.stderr
    account = json.loads(done.stdout)
    assert account["scenes"]
    assert all(scene["lines"] for scene in account["scenes"])
