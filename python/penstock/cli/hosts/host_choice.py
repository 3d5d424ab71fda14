"""Which job of many hosts a command is about."""

from penstock.cli.job.choice import job_called
from penstock.cli.job.home import home
from penstock.errors import JobSilent, UsageError
from penstock.process.job.catalogue import ELSEWHERE, FINAL, Job, jobs
from penstock.process.job.control import elsewhere


def running_hosts_job(name: str | None, command: str) -> Job:
    """A job of many hosts that runs here: the one of that name, or the newest."""
    job = _newest() if name is None else job_called(name)
    phase = job.phase()
    if phase == ELSEWHERE:
        raise elsewhere(job, command)
    if job.host_file() is None:
        raise JobSilent(job=job.id, reason="it has one host, this one", hint=f"`penstock ps {job.id}`")
    if phase in FINAL:
        raise JobSilent(job=job.id, reason=f"it is over ({phase})", hint=f"`penstock events {job.id}`")
    return job


def _newest() -> Job:
    running = [
        job
        for job in jobs(home())
        if job.host_file() is not None and job.phase() not in (*FINAL, "lost", ELSEWHERE)
    ]
    if not running:
        raise UsageError("no job of many hosts runs here", hint="`penstock jobs` lists all jobs")
    return running[-1]
