"""Jobs that are or were: found by name, with what is known about them.

A job is a directory. ``state.json`` in it is replaced whole by the agent, so reading it needs nobody's help; whether the agent
still lives is seen from its process.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import JobAmbiguous, JobUnknown, StateUnreadable
from penstock.process.job.local_home import HOST_DIRECTORIES, HOST_FILE, local_home

#: What was asked for with all secrets in it, beside a ``job.json`` that hides them.
PRIVATE = "private.json"
#: What the last words of a lost job would have been.
LOST = "keeper and agent were killed"
FINAL = frozenset({"succeeded", "failed", "stopped"})
#: Phase of a job of many hosts of which this is none, seen in a home that they share or by the launcher that started them.
ELSEWHERE = "elsewhere"
#: Where this home keeps what it knows of hosts that an engine gave.
ALLOCATIONS = "allocations"


class GangState(msgspec.Struct, frozen=True):
    """What is known about a gang; the fields are described in ``crates/penstock-process/src/job/state.rs``."""

    role: str
    kind: str
    phase: str
    reason: str
    incarnation: int | None
    master_port: int
    zygote: str
    workers: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    memory_limit: str | None = None
    #: The number of this host's rank 0 among the ranks of all hosts.
    first_rank: int = 0


class JobState(msgspec.Struct, frozen=True):
    """What is known about a job; the fields are described in ``crates/penstock-process/src/job/state.rs``."""

    job: str
    phase: str
    reason: str
    exit_code: int | None
    started_at: float
    ended_at: float | None
    keeper: int
    agent: int
    coordinator: int
    zygote: int
    cgroup: str | None
    gangs: list[GangState]
    incidents: list[str]
    log_lost_bytes: int
    namespace: str = ""
    inside: str = ""
    log_missing: list[dict[str, Any]] = []

    @property
    def incarnation(self) -> int:
        """The life of the gang that has seen most."""
        return max((gang.incarnation or 0 for gang in self.gangs), default=0)

    @property
    def workers(self) -> list[tuple[GangState, dict[str, Any]]]:
        """Every worker of the newest lives, with its gang."""
        return [(gang, worker) for gang in self.gangs for worker in gang.workers]


@dataclass(frozen=True)
class Job:
    """A job and its directory."""

    directory: Path

    @property
    def id(self) -> str:
        """Its name, unique in its home."""
        return self.directory.name

    @property
    def name(self) -> str:
        """The name that it was given, which others may have too: without the ending that makes it unique."""
        return self.id.rpartition("-")[0]

    def host_file(self) -> dict[str, Any] | None:
        """What this host knows about the others; nothing for a job of one host."""
        try:
            document: dict[str, Any] = msgspec.json.decode((self.directory / HOST_FILE).read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        return document

    def host_names(self) -> list[str]:
        """Hosts that are known to have it, of a job of many."""
        folder = self.directory / HOST_DIRECTORIES
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def state(self) -> JobState | None:
        """What is known; nothing when no agent was there yet."""
        try:
            state = msgspec.json.decode((self.directory / "state.json").read_bytes(), type=JobState)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as problem:
            raise StateUnreadable(
                job=self.id, path=self.directory / "state.json", reason=str(problem)
            ) from problem
        if state.inside and state.inside == _namespace():
            # We are one of the job's own, where processes have other numbers.
            for _, worker in state.workers:
                worker["pid"] = worker["inside"]
        return state

    def description(self) -> dict[str, Any]:
        """What was asked for, with secrets hidden."""
        description: dict[str, Any] = msgspec.json.decode((self.directory / "job.json").read_bytes())
        return description

    def exact_description(self) -> dict[str, Any]:
        """What was asked for, for those who start something in the job's stead; never to be shown."""
        try:
            description: dict[str, Any] = msgspec.json.decode((self.directory / PRIVATE).read_bytes())
        except FileNotFoundError:
            # Nothing is hidden, or the job is over.
            return self.description()
        return description

    def phase(self) -> str:
        """Where it is in its life; ``lost`` when keeper and agent are gone before it was over."""
        try:
            state = self.state()
        except StateUnreadable:
            # One directory of another time must not hide all other jobs.
            return "unreadable"
        if state is None:
            return ELSEWHERE if (self.directory / HOST_DIRECTORIES).is_dir() else "starting"
        if state.phase in FINAL or self._supervised(state):
            return state.phase
        # It may have ended between the two looks.
        again = self.state()
        return again.phase if again is not None and again.phase in FINAL else "lost"

    def reason(self) -> str:
        """Why it is in its phase; of a lost job the agent could not say any more."""
        if self.phase() == "lost":
            return LOST
        state = self.state()
        if state is None and (names := self.host_names()):
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            return f"on {', '.join(names[:8])}{more}"
        return state.reason if state is not None else ""

    def _supervised(self, state: JobState) -> bool:
        if state.namespace and state.namespace != _namespace():
            # Numbers of another namespace mean nothing here: nobody is taken for dead because of them.
            return True
        return any(self._is_ours(pid) for pid in (state.agent, state.keeper))

    def _is_ours(self, pid: int) -> bool:
        """Whether a process is an agent or keeper of this very job: numbers are used again, directories are not."""
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return words[0] == b"penstock-agent" and words[2:3] == [os.fsencode(self.directory)]


def _namespace() -> str:
    """The namespace whose numbers of processes we see."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def jobs(home: Path) -> list[Job]:
    """All jobs of a home, oldest first; of a job of many hosts what this host has of it."""
    folder = home / "jobs"
    candidates = (
        [_here(path) for path in folder.iterdir() if (path / "job.json").exists()] if folder.is_dir() else []
    )
    known = {job.directory for job in candidates}
    candidates += [job for job in _local_jobs(home) if job.directory not in known]
    return sorted(candidates, key=lambda job: ((job.directory / "job.json").stat().st_mtime_ns, job.id))


def _here(path: Path) -> Job:
    """A job by its directory in a home: the host directory, where this host has one."""
    folder = path / HOST_DIRECTORIES
    if not folder.is_dir():
        return Job(path)
    for line in sorted(folder.iterdir()):
        text = "" if line.name.startswith(".") else line.read_text().strip()
        own = Job(Path(text)).host_file() if text else None
        # Hosts mostly have the same path; the name tells whether it is this one's.
        if own is not None and own.get("name") == line.name and (Path(text) / "job.json").exists():
            return Job(Path(text))
    return Job(path)


def _local_jobs(home: Path) -> list[Job]:
    """Host directories on the local disk: also those of earlier starts, and those whose directory in the home is gone."""
    folder = local_home(os.environ) / "jobs"
    try:
        paths = list(folder.iterdir())
    except OSError:
        return []
    jobs = [Job(path) for path in paths if (path / "job.json").exists()]
    return [job for job in jobs if (job.host_file() or {}).get("home") == str(home)]


def find(home: Path, wanted: str) -> Job:
    """The job that a name means; of several with the same name the newest."""
    return namesakes(home, wanted)[-1]


def namesakes(home: Path, wanted: str) -> list[Job]:
    """The jobs that a name may mean, oldest first; more than one only where jobs were given the same name.

    A name is the whole of it (``train-3f2a``), what it was given (``train``), or a beginning that only one has.
    """
    known = jobs(home)
    rules: tuple[Callable[[Job], bool], ...] = (
        lambda job: job.id == wanted,
        lambda job: job.name == wanted,
        lambda job: job.id.startswith(wanted),
    )
    matching = next((matches for rule in rules if (matches := [job for job in known if rule(job)])), [])
    alike = {job.name for job in matching} == {wanted}
    if wanted and len(matching) > 1 and not alike:
        raise JobAmbiguous(wanted=wanted, matching=[job.id for job in matching])
    if not wanted or not matching:
        if wanted and (home / ALLOCATIONS).is_dir():
            from penstock.process.engines.reach import far_job

            far = far_job(home, wanted)
            if far is not None:
                raise far
        raise JobUnknown(wanted=wanted, home=home, known=[job.id for job in matching or known])
    return matching
