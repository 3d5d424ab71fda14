"""Errors of jobs."""

from pathlib import Path

from penstock.errors.root import PenstockError


class ProcessError(PenstockError):
    """Something about jobs and their processes."""


class AgentMissing(ProcessError):
    """The executable that supervises is not there."""

    hint = "in a checkout `make demo` or `make test` builds it; a wheel has it inside"

    def __init__(self, *, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is missing, so no job can be started")


class JobUnknown(ProcessError):
    """No job has that name, or more than one."""

    def __init__(self, *, wanted: str, home: Path, known: list[str]) -> None:
        self.wanted, self.home, self.known = wanted, home, known
        some = ", ".join(known[-8:])
        self.hint = f"known jobs are {some}" if known else "`penstock run --detach -- COMMAND` starts one"
        super().__init__(f"there is no job {wanted!r} in {home}")


class JobSilent(ProcessError):
    """The agent of a job does not answer."""

    exit_code = 1
    hint = "`penstock jobs` shows what is known; `penstock logs` still works"

    def __init__(self, *, job: str, reason: str) -> None:
        self.job, self.reason = job, reason
        super().__init__(f"the agent of job {job} does not answer: {reason}")


class SlotsUnreadable(ProcessError):
    """What is leased on this machine cannot be read."""

    hint = "the directory of leases is $PENSTOCK_SLOTS, or one of your own in /tmp"

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"what is leased cannot be read: {reason}")
