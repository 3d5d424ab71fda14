"""Which job a command is about, or which run where it takes both."""

from pathlib import Path

from penstock.cli.job.home import home
from penstock.cli.output import say
from penstock.errors import RunUnknown
from penstock.process.job.catalogue import ELSEWHERE, Job, jobs, namesakes
from penstock.process.job.control import elsewhere

#: How the address of a run begins, as `penstock.view.address` says it.
RUN = "run:"
#: Others of the same name that are listed.
LISTED = 8


def job_called(name: str) -> Job:
    """The job that a name means. Of several with the same name it is the newest, and the others are named.

    Of a job that was started by ssh from here, the command is executed on one of its hosts instead.
    """
    *others, job = namesakes(home(), name)
    if others:
        listed = ", ".join(f"{other.id} ({other.phase()})" for other in reversed(others[-LISTED:]))
        more = f" and {len(others) - LISTED} older" if len(others) > LISTED else ""
        say(f"note: {name} is {job.id}, the newest of {len(others) + 1}; others are {listed}{more}")
    if job.phase() == ELSEWHERE:
        # Here, because most commands are about jobs of this host, and what logs in takes a third of their start.
        from penstock.cli.questions.relay import execute_there

        execute_there(job, name)
    return job


def job_here(name: str, command: str) -> Job:
    """The job that a name means, for a command that answers for this host alone; of a job of many hosts it says so."""
    job = job_called(name)
    if job.phase() == ELSEWHERE:
        raise elsewhere(job, command)
    host = job.host_file()
    if host is not None:
        say(
            f"note: {job.id} has {host.get('nnodes')} hosts, and this is {host.get('name')} alone{_numbers(job)}"
        )
    return job


def _numbers(job: Job) -> str:
    """How ranks are counted here, where the first of them is not rank 0."""
    state = job.state()
    shifted = [gang for gang in state.gangs if gang.first_rank and gang.workers] if state else []
    if not shifted:
        return ""
    gang, last = shifted[0], len(shifted[0].workers) - 1
    return f": its ranks 0-{last} are {gang.first_rank}-{gang.first_rank + last} of the job"


def job_or_run(text: str) -> Job | Path:
    """The job or the directory of the run that a text means.

    ``run:DIR`` and whatever has a slash is a run. A name is that of a job, else of a run, else the beginning of a job's: so jobs are
    found as ever, and ``run:NAME`` is the run of that name.
    """
    # Runs bring data and checkpoints along: a second of imports that `ps` and `stop` have no use for.
    from penstock.cli.runs.place import run_at

    if text.startswith(RUN) or "/" in text:
        return run_at(text)
    is_job = any(text in (job.id, job.name) for job in jobs(home()))
    try:
        place = run_at(text)
    except RunUnknown:
        if not is_job and Path(text).is_dir():
            raise
        return job_called(text)
    if is_job:
        say(f"note: {text} is a job, and a run too; {RUN}{text} is the run")
        return job_called(text)
    return place
