"""Jobs with slots: a description as the agent reads it, and what their ranks saw."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.process.job.fork_choice import ENTRY
from penstock.process.job.launch import agent_path
from tests.process.jobs import Running, end, is_alive, wait_until

#: What a rank writes down about its place, then it waits for `$MARKS/go`, or for a signal.
LOOK = """
import json, os, pathlib, signal, sys, time
marks = pathlib.Path(os.environ["MARKS"])
names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "PENSTOCK_PORTS", "OMP_NUM_THREADS", "MASTER_PORT", "PENSTOCK_INCARNATION")
seen = {name: os.environ.get(name) for name in names}
seen["cpus"] = sorted(os.sched_getaffinity(0))
seen["uid"], seen["gid"], seen["pid"] = os.getuid(), os.getgid(), os.getpid()
place = marks / f"{os.environ['PENSTOCK_ROLE']}-{os.environ['RANK']}.{os.environ['PENSTOCK_INCARNATION']}.seen"
place.with_suffix(".part").write_text(json.dumps(seen))
place.with_suffix(".part").rename(place)
(marks / f"{os.getpid()}.pid").touch()
while not (marks / "go").exists():
    time.sleep(0.01)
"""


def python(code: str, *, how: str = "exec") -> dict[str, Any]:
    """The fields of a role that runs some code: executed, or forked from a warm Python."""
    command = [sys.executable, "-c", code]
    if how == "exec":
        return {"command": command}
    warm = {"interpreter": sys.executable, "flags": [], "entry": str(ENTRY), "preload": ["json"]}
    return {"command": command, "zygote": {**warm, "argv": command[1:], "module": False}}


def role(*command: str, name: str = "rank", **fields: Any) -> dict[str, Any]:
    """One role, with everything that is not given as usual."""
    policy = {
        "restart": fields.pop("restart", "gang"),
        "budget": {"crash": 0, "memory": 0, "hang": 0, "preemption": 0} | fields.pop("budget", {}),
        "refill_steps": 0,
        "backoff_ms": 0,
        "backoff_max_ms": 0,
        "same_failure_max": 0,
        "stop_grace_ms": 300,
        "failure_grace_ms": 300,
        "hang": None,
    }
    usual = {"name": name, "kind": "gang", "ranks": 1, "after": [], "environment": {}, "spares": 0}
    slots = {"cpus": 0, "gpus": 0, "memory_bytes": 0, "ports": 0} | fields.pop("slots", {})
    return {**usual, "command": list(command), "slots": slots, "policy": policy, **fields}


def describe(home: Path, *roles: dict[str, Any], **fields: Any) -> Path:
    """The directory of a job that nobody has started."""
    identity = f"{fields.pop('name', 'job')}-{secrets.token_hex(2)}"
    directory = home / "jobs" / identity
    for folder in ("logs", "incidents"):
        (directory / folder).mkdir(parents=True)
    usual = {"id": identity, "detached": False, "colour": False, "cgroup": True, "directory": str(home)}
    (directory / "job.json").write_text(json.dumps({**usual, "roles": list(roles), **fields}))
    return directory


@contextmanager
def machine(folder: Path, *, user: int | None = None, **variables: str) -> Iterator[Callable[..., Running]]:
    """A machine of its own: locks that no other test sees. Gives what starts a job on it, as that user."""
    started: list[Running] = []
    (folder / "slots").mkdir(mode=0o700)
    agent = shutil.copy(agent_path(), folder)
    owner: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}

    def begin(*roles: dict[str, Any], **fields: Any) -> Running:
        home = folder / f"home-{len(started)}"
        marks = home / "marks"
        marks.mkdir(parents=True)
        directory = describe(home, *roles, **fields)
        own = {"PENSTOCK_SLOTS": str(folder / "slots"), "PENSTOCK_HOME": str(home), "MARKS": str(marks)}
        environment = {**os.environ, **own, **variables}
        for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
            environment.pop(name, None)
        if user is not None:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, user, user)
        launcher = subprocess.Popen(
            [agent, "launch", directory],
            env=environment,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **owner,
        )
        started.append(Running(home, launcher, marks))
        return started[-1]

    yield begin
    for running in started:
        end(running)


def saw(running: Running, worker: str = "rank-0", life: int = 0) -> dict[str, Any]:
    """What a rank wrote down, once it has."""
    path = running.marks / f"{worker}.{life}.seen"
    wait_until(path.exists, f"{worker} has written what it sees: {running.job.state()}")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def leased_by(pid: int) -> set[str]:
    """Locks that a process holds, by the names of their files."""
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return {os.path.basename(link) for link in links if os.path.basename(link).startswith("lock-")}


def let_go(running: Running) -> None:
    """Lets the ranks of a job succeed."""
    (running.marks / "go").touch()


def everybody(running: Running) -> list[int]:
    """All living processes of a job but its launcher, as seen from here: they carry its directory for marks."""
    mark = b"MARKS=" + os.fsencode(running.marks)
    launcher = running.launcher.pid if running.launcher is not None else 0
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if pid != launcher and is_alive(pid) and mark in _environment(pid)]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
