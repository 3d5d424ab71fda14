"""What benchmarks of processes share: trivial ranks that say when they are ready, jobs that are started and ended, and waiting."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from penstock.process import Job, Launch, prepare
from penstock.process.job.launch import agent_path

READY = "import os, signal; open(f\"{os.environ['MARKS']}/{os.getpid()}\", 'w'); signal.pause()"
#: As little Python as there can be: what is measured is the launch, not the interpreter.
RANK = [sys.executable, "-S", "-c", READY]
PATIENCE_S = 120.0


def fresh_marks(home: Path) -> Path:
    """An empty directory where ranks say that they are ready."""
    marks = home / "marks"
    shutil.rmtree(marks, ignore_errors=True)
    marks.mkdir(parents=True)
    return marks


def wait(condition: Callable[[], bool]) -> None:
    """Look every millisecond, for two minutes at most."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("the ranks did not become ready")
        time.sleep(0.001)


def wait_ready(marks: Path, count: int) -> None:
    """Until so many ranks have said so."""
    wait(lambda: len(os.listdir(marks)) == count)


def start(home: Path, launch: Launch, **options: object) -> "tuple[Job, subprocess.Popen[bytes]]":
    """A job and its launcher."""
    job = prepare(home, launch)
    environment = {**os.environ, "MARKS": str(home / "marks")}
    words = [str(agent_path()), "launch", str(job.directory)]
    return job, subprocess.Popen(words, env=environment, **options)  # type: ignore[call-overload]


def end(launcher: "subprocess.Popen[bytes]") -> None:
    """An orderly stop."""
    launcher.send_signal(signal.SIGTERM)
    launcher.wait(PATIENCE_S)
