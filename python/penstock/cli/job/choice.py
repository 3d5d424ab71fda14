"""Which job a command is about."""

from penstock.cli.job.home import home
from penstock.cli.output import say
from penstock.process.job.catalogue import Job, namesakes

#: Others of the same name that are listed.
LISTED = 8


def job_called(name: str) -> Job:
    """The job that a name means. Of several with the same name it is the newest, and the others are named."""
    *others, job = namesakes(home(), name)
    if others:
        listed = ", ".join(f"{other.id} ({other.phase()})" for other in reversed(others[-LISTED:]))
        more = f" and {len(others) - LISTED} older" if len(others) > LISTED else ""
        say(f"note: {name} is {job.id}, the newest of {len(others) + 1}; others are {listed}{more}")
    return job
