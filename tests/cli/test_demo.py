"""``penstock demo`` runs as a person would run it and stands by what it shows."""

import json
import subprocess
import sys


def test_the_demo_holds() -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "demo", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    account = json.loads(done.stdout)
    assert account["scenes"]
    assert all(scene["lines"] for scene in account["scenes"])
