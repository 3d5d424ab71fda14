"""Starting real jobs and looking for their processes afterwards.

Every process of a job is found by /proc. A wait always has a deadline and always waits for a condition.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.process import Budget, Job, JobSpec, JobState, Policy, Role, prepare
from penstock.process.job.catalogue import jobs
from penstock.process.job.launch import agent_path

#: A second is the promise (P2); the machine of the tests may be busy with other things.
PATIENCE_S = 20.0
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]


def wait_until(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Look again and again, until it is so or time is over."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"after {timeout_s} s: {what}"
        threading.Event().wait(0.005)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def memory_bytes(pid: int) -> int:
    """The most that a process ever held at once."""
    (line,) = (row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@dataclass
class Running:
    """A job, its launcher if it has one, and the numbers that its processes wrote down."""

    home: Path
    launcher: "subprocess.Popen[bytes] | None"
    marks: Path
    #: Found when first asked for.
    found: list[Job] = field(default_factory=list)

    @property
    def job(self) -> Job:
        """The only job of this home."""
        if not self.found:
            wait_until(lambda: jobs(self.home), "the job has a directory")
            self.found = jobs(self.home)
        return self.found[0]

    def state(self) -> JobState:
        """What is known about it."""
        wait_until(lambda: self.job.state() is not None, "the agent has written a state")
        state = self.job.state()
        assert state is not None
        return state

    def pids(self, count: int) -> list[int]:
        """Numbers of all processes that wrote one down, once there are so many."""
        wait_until(
            lambda: len(list(self.marks.glob("*.pid"))) >= count,
            f"{count} processes wrote their number, not {sorted(p.name for p in self.marks.glob('*'))}",
        )
        return [int(path.stem) for path in self.marks.glob("*.pid")]

    def journal(self, event: str) -> list[dict[str, object]]:
        """What was written down under that name, in order."""
        lines = (self.job.directory / "journal.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["event"] == event]

    def wait_phase(self, phase: str) -> JobState:
        """The state when the job has come so far."""
        wait_until(lambda: self.job.phase() == phase, f"the job is {phase}: {self.job.state()}")
        return self.state()


def start(home: Path, *words: str, environment: dict[str, str] | None = None, **options: object) -> Running:
    """`penstock run` with the words, in a home of its own. Ranks find a directory for marks in $MARKS."""
    marks = home / "marks"
    marks.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, "PENSTOCK_HOME": str(home), "MARKS": str(marks), **(environment or {})}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    launcher = subprocess.Popen([*PENSTOCK, "run", *words], env=variables, start_new_session=True, **output)  # type: ignore[call-overload]
    return Running(home, launcher, marks)


def role(name: str, script: str, *, restart: str = "gang", crashes: int = 3, **changes: Any) -> Role:
    """A role that runs a script of bash, and restarts without delay."""
    budget = Budget(crash=crashes, memory=crashes, hang=crashes, preemption=9)
    policy = Policy(restart=restart, budget=budget, backoff_s=0)
    return Role(**{"name": name, "command": ["bash", "-c", script], "policy": policy, **changes})


def start_roles(home: Path, *roles: Role) -> Running:
    """A foreground job of several roles, in a home of its own."""
    marks = home / "marks"
    marks.mkdir(parents=True, exist_ok=True)
    job = prepare(home, JobSpec(roles=roles, directory=home))
    launcher = subprocess.Popen(
        [agent_path(), "launch", job.directory],
        env={**os.environ, "MARKS": str(marks)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    return Running(home, launcher, marks)


def marked(job: Job) -> list[int]:
    """Processes that carry the job's directory in their environment: whatever they did, they came from its workers."""
    mark = b"PENSTOCK_JOB_DIRECTORY=" + os.fsencode(job.directory)
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
        except OSError:
            continue
    return pids


def penstock(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Any command, in that home."""
    variables = {**os.environ, "PENSTOCK_HOME": str(home)}
    return subprocess.run([*PENSTOCK, *words], env=variables, capture_output=True, text=True, timeout=60)


def end(running: Running) -> None:
    """Whatever a test left: killed, so that tests cannot disturb each other."""
    state = running.job.state() if jobs(running.home) else None
    pids = [int(path.stem) for path in running.marks.glob("*.pid")]
    owners = (
        []
        if state is None or running.job.phase() in ("succeeded", "failed", "stopped")
        else [state.keeper, state.agent]
    )
    launcher = (
        [] if running.launcher is None or running.launcher.poll() is not None else [running.launcher.pid]
    )
    for pid in [*launcher, *owners, *(pid for pid in pids if _carries(pid, running.marks))]:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    if running.launcher is not None:
        running.launcher.communicate(timeout=30)
    if owners:
        wait_until(lambda: running.job.phase() != "running", "keeper and agent are gone")
        subprocess.run([agent_path(), "sweep", running.job.directory], check=True, timeout=30)


def _carries(pid: int, marks: Path) -> bool:
    """Whether the number still is that of a process of the job: numbers are used again."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return b"MARKS=" + os.fsencode(marks) in environment.split(b"\0")
