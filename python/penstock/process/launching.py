"""From a wish to a job: what to run, the directory that will hold everything about it, and the executable's place."""

import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.errors import AgentMissing, UsageError
from penstock.process.jobs import Job

AGENT = Path(__file__).parent / "bin" / "penstock-agent"
RANKS_MAX = 4096
SEGMENT_BYTES_MIN = 4096


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

    def __post_init__(self) -> None:
        for name in (
            "most",
            "backoff_s",
            "backoff_max_s",
            "same_failure_max",
            "stop_grace_s",
            "failure_grace_s",
        ):
            if not 0 <= getattr(self, name) < 2**31:
                raise UsageError(f"{name} of restarts must be 0 or more, got {getattr(self, name)}")

    def to_json(self) -> dict[str, int]:
        """As the agent reads it."""
        return {
            "restarts_max": self.most,
            "backoff_ms": round(self.backoff_s * 1000),
            "backoff_max_ms": round(self.backoff_max_s * 1000),
            "same_failure_max": self.same_failure_max,
            "stop_grace_ms": round(self.stop_grace_s * 1000),
            "failure_grace_ms": round(self.failure_grace_s * 1000),
        }


@dataclass(frozen=True, kw_only=True)
class Output:
    """How the output of workers is carried and kept."""

    #: A terminal for each worker instead of pipes.
    terminal: bool = False
    #: When the person's terminal is slow: ``wait`` holds workers back, ``drop`` leaves output out there. Logs are complete either way.
    pressure: Literal["wait", "drop"] = "wait"
    #: How large a segment of a log becomes; 0 for one without end.
    segment_bytes: int = 0
    #: How many segments stay, the newest; 0 for all.
    segments_kept: int = 0

    def __post_init__(self) -> None:
        if self.segment_bytes != 0 and not SEGMENT_BYTES_MIN <= self.segment_bytes < 2**63:
            raise UsageError(
                f"a segment of a log has at least {SEGMENT_BYTES_MIN} bytes, not {self.segment_bytes}",
                hint="0 keeps each log in one file",
            )
        if not 0 <= self.segments_kept < 2**31:
            raise UsageError(f"segments_kept must be 0 or more, got {self.segments_kept}")
        if self.segments_kept and not self.segment_bytes:
            raise UsageError(
                "segments are kept or removed only if logs are cut into segments", hint="give their size, too"
            )


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
    folder = home / "jobs"
    folder.mkdir(parents=True, exist_ok=True)
    job = _new(folder, launch)
    for name in ("logs", "incidents"):
        (job.directory / name).mkdir()
    document = {
        "id": job.id,
        "command": list(launch.command),
        "ranks": launch.ranks,
        "detached": launch.detached,
        "colour": launch.colour,
        "master_port": launch.master_port,
        "cgroup": launch.cgroup,
        "policy": launch.restarts.to_json(),
        "terminal": launch.output.terminal,
        "pressure": launch.output.pressure,
        "segment_bytes": launch.output.segment_bytes,
        "segments_kept": launch.output.segments_kept,
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
