"""From a wish to a job: the directory that will hold everything about it, and the executable's place.

``Launch`` is the short way to a job of one role; ``JobSpec`` says everything.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors.process import AgentMissing, HomeUnwritable
from penstock.errors.root import UsageError
from penstock.process.job.catalogue import PRIVATE
from penstock.process.job.command import warmed
from penstock.process.job.output import Output
from penstock.process.job.spec import Budget, Hang, JobSpec, Policy, Role
from penstock.process.job.suspicion import may_hold_secret

if TYPE_CHECKING:
    from penstock.process.job.catalogue import Job

AGENT = Path(__file__).parent.parent / "bin" / "penstock-agent"


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """The short way to a policy: one number for all causes but memory, and the times that matter."""

    #: How many lives after the first.
    most: int = 0
    backoff_s: float = 1.0
    backoff_max_s: float = 30.0
    same_failure_max: int = 2
    stop_grace_s: float = 10.0
    save_grace_s: float = 300.0
    failure_grace_s: float = 0.5
    #: Without a step for ten times the usual step, and at least this long, a rank hangs. 0: it never does. Without a choice a minute,
    #: and nothing is ended where there are no restarts.
    hang_s: float | None = None
    #: Without a step ever reported, a rank that writes nothing for so long hangs. 0: it never does.
    silence_s: float = 0.0

    def policy(self) -> Policy:
        """With a budget for each cause."""
        return Policy(
            budget=Budget.of(self.most),
            backoff_s=self.backoff_s,
            backoff_max_s=self.backoff_max_s,
            same_failure_max=self.same_failure_max,
            stop_grace_s=self.stop_grace_s,
            save_grace_s=self.save_grace_s,
            failure_grace_s=self.failure_grace_s,
            hang=Hang.of(least_s=self.hang_s, silence_s=self.silence_s),
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
    #: Whether ranks are forked from a warm Python: ``auto``, ``always`` or ``never``.
    zygote: str = "auto"
    #: What the warm Python imports; by default what the script seems to need.
    preload: Sequence[str] = ()

    def spec(self) -> JobSpec:
        """The same as a whole description."""
        role = Role(
            command=self.command,
            ranks=self.ranks,
            master_port=self.master_port,
            terminal=self.output.terminal,
            policy=self.restarts.policy(),
        )
        return JobSpec(
            roles=[warmed(role, self.zygote, self.preload, directory=Path.cwd())],
            name=self.name,
            detached=self.detached,
            colour=self.colour,
            cgroup=self.cgroup,
            directory=Path.cwd(),
            python=Path(sys.executable),
            pressure=self.output.pressure,
            segment_bytes=self.output.segment_bytes,
            segments_kept=self.output.segments_kept,
        )


def agent_path() -> Path:
    """Where the executable is."""
    if not AGENT.exists():
        raise AgentMissing(path=AGENT)
    return AGENT


def prepare(home: Path, wish: JobSpec | Launch) -> "Job":
    """Make the directory of a new job; nothing runs yet."""
    from penstock.process.job.catalogue import Job

    return Job(furnish(home, wish.spec() if isinstance(wish, Launch) else wish))


def furnish(
    home: Path, spec: JobSpec, *, logs: Path | None = None, environment: Mapping[str, str] | None = None
) -> Path:
    """The directory of a new job. Its logs go below a directory of their own when one is given.

    ``environment`` is the caller's: what is a secret there is not written down for others.
    """
    agent_path()
    folder = home / "jobs"
    directory = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        directory = _new(folder, spec.name or stem(spec.roles[0].command))
        fill_directory(directory, spec.to_json(directory.name), logs, environment or {})
    except OSError as problem:
        if directory is not None:
            # Half a directory is no job, and takes the space that another try needs.
            _remove(directory)
        raise HomeUnwritable(home=home, reason=problem.strerror or str(problem)) from problem
    return directory


def fill_directory(
    directory: Path, asked: dict[str, Any], logs: Path | None, environment: Mapping[str, str]
) -> None:
    """Put into an empty directory what an agent needs: the description, and places for logs and incidents."""
    (directory / "incidents").mkdir()
    if logs is None:
        (directory / "logs").mkdir()
    else:
        place = logs.absolute() / directory.name
        place.mkdir(parents=True, mode=0o700)
        (directory / "logs").symlink_to(place, target_is_directory=True)
    shown = _shown(asked, environment)
    if shown != asked:
        # What restarts need, exactly; the agent removes it when the job has ended.
        exact = os.open(directory / PRIVATE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(exact, "w") as file:
            json.dump(asked, file)
    # Renamed into place, because a job is listed as soon as it has this file.
    beside = directory / "job.json.new"
    beside.write_text(json.dumps(shown))
    beside.rename(directory / "job.json")


def _shown(asked: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The description for people: what is a secret in it is hidden."""
    variables = {name: value for role in asked["roles"] for name, value in role["environment"].items()}
    words = [word for role in asked["roles"] for word in role["command"]]
    if not may_hold_secret([*words, *variables, *variables.values()], environment):
        return asked
    from penstock.events.redaction import Redaction

    redaction = Redaction({**environment, **variables})
    hidden = ("command", "environment", "zygote")
    roles = [
        {**role, **_part(redaction.document({key: role[key] for key in hidden}))} for role in asked["roles"]
    ]
    return {**asked, "roles": roles}


def _part(document: object) -> dict[str, Any]:
    assert isinstance(document, dict)
    return document


def _remove(directory: Path) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)


def _new(folder: Path, wanted: str) -> Path:
    begin = re.sub(r"[^A-Za-z0-9._-]", "", wanted).strip(".-")[:40] or "job"
    for _ in range(100):
        directory = folder / f"{begin}-{os.urandom(2).hex()}"
        try:
            # The logs of a job are its owner's business.
            directory.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return directory.resolve()
    raise UsageError(f"no free name for a job called {begin!r} in {folder}", hint="choose another --name")


def stem(command: Sequence[str]) -> str:
    """The word that says most about a command: the script or the module, else the program."""
    for before, word in pairwise(command):
        if word.endswith(".py"):
            return Path(word).stem
        if before == "-m":
            return word.rpartition(".")[2]
    return Path(command[0]).name
