"""What jobs leave: processes of jobs whose keeper and agent were killed in the same instant, and directories of jobs that are over.

Whoever lists jobs sweeps the lost ones first, so that nothing of them outlives the next look (P2).
"""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.process.job.catalogue import FINAL, Job, jobs
from penstock.process.job.local_home import HOST_DIRECTORIES

SWEEP_PATIENCE_S = 30.0
#: In the directory of a lost job, once nothing of it is left. What it left cannot come back.
SWEPT = "swept"


class Left(NamedTuple):
    """A process of a job that could not be ended."""

    pid: int
    name: str
    #: Whose it is, or in which state.
    why: str


class Sweep(NamedTuple):
    """What came of ending a job without its agent."""

    left: list[Left]
    #: Whether processes carry the job's mark, which no program takes off; else only their environment tells whose they are.
    marked: bool

    def words(self) -> str:
        """For people: what is so, and nothing more."""
        if self.left:
            some = ", ".join(f"{survivor.pid} ({survivor.name}) {survivor.why}" for survivor in self.left[:8])
            many = len(self.left)
            return f"{many} process{'es' if many > 1 else ''} of it cannot be ended: {some}"
        if not self.marked:
            return "what carries its environment is swept; others cannot be told apart on this system"
        return "what was left of it is swept"


def sweep(directory: Path, *, end: bool = False) -> Sweep:
    """Kill everybody of a job, also keeper and agent; with ``end`` the job is stopped then, and its state says so."""
    # What starts jobs is not loaded by whoever only looks at them, and sweeping is rare.
    from penstock.process.job.launch import agent_path

    call = [agent_path(), "end" if end else "sweep", directory]
    done = subprocess.run(call, check=False, timeout=SWEEP_PATIENCE_S, stdout=subprocess.PIPE)
    answer = msgspec.json.decode(done.stdout)
    return Sweep([Left(**survivor) for survivor in answer["left"]], answer["marked"])


def sweep_lost(home: Path, *, tell: Callable[[str], None] | None = None) -> list[Job]:
    """Kill what is left of lost jobs; the jobs that were swept now."""
    swept = []
    for job in jobs(home):
        if (job.directory / SWEPT).exists() or job.phase() != "lost":
            continue
        done = sweep(job.directory)
        if not done.left:
            (job.directory / SWEPT).touch()
            swept.append(job)
        if tell is not None:
            tell(f"note: keeper and agent of {job.id} were killed; {done.words()}")
    return swept


class Pruned(NamedTuple):
    """A directory that was removed."""

    job: str
    phase: str
    freed_bytes: int


def prune(home: Path, *, older_s: float, dry_run: bool = False) -> list[Pruned]:
    """Remove directories of jobs that are over for so long. Running and lost jobs stay, whatever their age."""
    pruned = []
    for job in jobs(home):
        state = job.state() if job.phase() in FINAL else None
        if state is None:
            continue
        if time.time() - (state.ended_at or state.started_at) < older_s:
            continue
        freed, host = _size(job.directory), job.host_file()
        if not dry_run:
            # Out of the list first: half a directory is no job.
            aside = job.directory.with_name(f".removed-{job.id}")
            job.directory.rename(aside)
            shutil.rmtree(aside)
            _forget(host)
        pruned.append(Pruned(job.id, state.phase, freed))
    return pruned


def _forget(host: dict[str, Any] | None) -> None:
    """Take a host that removed its part out of the job's directory; the last one takes the directory along."""
    if host is None or not host.get("job_directory"):
        return
    directory = Path(host["job_directory"])
    (directory / HOST_DIRECTORIES / str(host["name"])).unlink(missing_ok=True)
    if not Job(directory).host_names():
        shutil.rmtree(directory, ignore_errors=True)


def _size(directory: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*") if not path.is_symlink())
