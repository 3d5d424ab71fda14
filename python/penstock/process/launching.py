"""From a wish to a job: what to run, the directory that will hold everything about it, and the executable's place."""

import json
import os
import re
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import AgentMissing, UsageError
from penstock.process.jobs import Job
from penstock.process.output import Output
from penstock.process.warming import Surroundings, warmth

AGENT = Path(__file__).parent / "bin" / "penstock-agent"
RANKS_MAX = 4096
#: So many times the step time that a run has shown is a hang.
HANG_FACTOR = 10.0


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """When a gang is given another life, and how long an end may take."""

    #: How many lives after the first.
    most: int = 0
    #: Before the second restart in a row; doubled for each further one. The first comes at once.
    backoff_s: float = 1.0
    backoff_max_s: float = 30.0
    #: How often in a row the same failure may happen. 0: as often as it likes.
    same_failure_max: int = 2
    #: From SIGTERM to SIGKILL when somebody asks the job to stop.
    stop_grace_s: float = 10.0
    #: From SIGTERM to SIGKILL for ranks that lost a peer.
    failure_grace_s: float = 3.0
    #: Without a step for ten times the usual step, and at least this long, a rank hangs. 0: it never does.
    hang_s: float = 10.0
    #: Without a step ever reported, a rank that writes nothing for so long hangs. 0: it never does.
    silence_s: float = 0.0

    def __post_init__(self) -> None:
        for name in (
            "most",
            "backoff_s",
            "backoff_max_s",
            "same_failure_max",
            "stop_grace_s",
            "failure_grace_s",
            "hang_s",
            "silence_s",
        ):
            if not 0 <= getattr(self, name) < 2**31:
                raise UsageError(f"{name} of restarts must be 0 or more, got {getattr(self, name)}")

    def to_json(self) -> dict[str, object]:
        """As the coordinator reads it."""
        return {
            "restart": "gang",
            "budget": {"crash": self.most, "memory": self.most, "hang": self.most, "preemption": 1000},
            "refill_steps": 100,
            "backoff_ms": round(self.backoff_s * 1000),
            "backoff_max_ms": round(self.backoff_max_s * 1000),
            "same_failure_max": self.same_failure_max,
            "stop_grace_ms": round(self.stop_grace_s * 1000),
            "failure_grace_ms": round(self.failure_grace_s * 1000),
            "hang": self._hang(),
        }

    def _hang(self) -> dict[str, object] | None:
        if self.hang_s == self.silence_s == 0:
            return None
        # Who watches for silence only is not to be judged by steps.
        least_s = self.hang_s or 2**31 - 1
        return {
            "factor": HANG_FACTOR,
            "least_ms": round(least_s * 1000),
            "silence_ms": round(self.silence_s * 1000),
        }


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A gang of ranks that run the same command."""

    command: Sequence[str]
    ranks: int = 1
    name: str | None = None
    detached: bool = False
    colour: bool = False
    master_port: int | None = None
    #: Whether ranks get control groups, where that is allowed.
    cgroup: bool = True
    restarts: Restarts = field(default_factory=Restarts)
    output: Output = field(default_factory=Output)
    #: Whether ranks are forked from a warm Python: ``auto``, ``always`` or ``never``.
    zygote: str = "auto"
    #: What the warm Python imports; by default what the script seems to need.
    preload: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.command:
            raise UsageError(
                "there is no command to run", hint="put it after `--`, as in `-- python train.py`"
            )
        if not 1 <= self.ranks <= RANKS_MAX:
            raise UsageError(f"a gang has 1 to {RANKS_MAX} ranks, not {self.ranks}")
        if self.name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", self.name):
            raise UsageError(
                f"{self.name!r} cannot be the name of a job", hint="letters, digits, `.`, `_` and `-`"
            )
        if self.master_port is not None and not 1 <= self.master_port <= 65535:
            raise UsageError(f"{self.master_port} is not a port")


def agent_path() -> Path:
    """Where the executable is."""
    if not AGENT.exists():
        raise AgentMissing(path=AGENT)
    return AGENT


def prepare(home: Path, launch: Launch) -> Job:
    """Make the directory of a new job; nothing runs yet."""
    agent_path()
    around = Surroundings(ranks=launch.ranks, restarts=launch.restarts.most > 0)
    warm = warmth(launch.command, around, mode=launch.zygote, preload=launch.preload)
    folder = home / "jobs"
    folder.mkdir(parents=True, exist_ok=True)
    job = _new(folder, launch)
    for name in ("logs", "incidents"):
        (job.directory / name).mkdir()
    role = {
        "name": "rank",
        "kind": "gang",
        "command": list(launch.command),
        "ranks": launch.ranks,
        "master_port": launch.master_port,
        "zygote": warm.zygote,
        "zygote_why": warm.why,
        "policy": launch.restarts.to_json(),
        "terminal": launch.output.terminal,
    }
    document = {
        "id": job.id,
        "detached": launch.detached,
        "colour": launch.colour,
        "cgroup": launch.cgroup,
        "directory": os.getcwd(),
        "python": sys.executable,
        **launch.output.of_job(),
        "roles": [role],
    }
    # Renamed into place, because a job is listed as soon as it has this file.
    beside = job.directory / "job.json.new"
    beside.write_text(json.dumps(document))
    beside.rename(job.directory / "job.json")
    return job


def _new(folder: Path, launch: Launch) -> Job:
    stem = re.sub(r"[^A-Za-z0-9._-]", "", launch.name or _stem(launch.command)).strip(".-")[:40] or "job"
    for _ in range(100):
        identity = f"{stem}-{secrets.token_hex(2)}"
        try:
            # The logs of a job are its owner's business.
            os.mkdir(folder / identity, 0o700)
        except FileExistsError:
            continue
        return Job((folder / identity).resolve())
    raise UsageError(f"no free name for a job called {stem!r} in {folder}", hint="choose another --name")


def _stem(command: Sequence[str]) -> str:
    """The word that says most about a command: the script or the module, else the program."""
    for word in command[1:]:
        if word.endswith(".py"):
            return Path(word).stem
    return Path(command[0]).name
