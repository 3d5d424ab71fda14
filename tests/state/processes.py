"""Real processes of ``tests.state.savers``: started, let go at the same moment, and asked what they found."""

import json
import subprocess
import sys
from typing import Any

from penstock.store import Store
from tests.conftest import ROOT

Process = subprocess.Popen[str]


def start(role: str, store: Store, *arguments: object) -> Process:
    """A process that waits for ``go``."""
    command = [sys.executable, "-m", "tests.state.savers", role, store.url, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ready(*processes: Process) -> None:
    """Wait until processes have started, and let them begin at the same moment."""
    for process in processes:
        assert "ready" in said(process)
    go(*processes)


def go(*processes: Process) -> None:
    """Let waiting processes go on."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def said(process: Process) -> dict[str, Any]:
    """The next thing a process says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the process ended with {process.wait(60)} and said nothing"
    answer = json.loads(line)
    assert isinstance(answer, dict)
    return answer


def end(*processes: Process) -> list[dict[str, Any]]:
    """The last thing each process says before it ends in order."""
    answers = []
    for process in processes:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0, out
        answers.append(json.loads(out.splitlines()[-1]))
    return answers
