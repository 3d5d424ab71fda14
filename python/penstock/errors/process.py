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


class SpyMissing(ProcessError):
    """The executable that reads stacks of Python processes is not there."""

    hint = "`pip install py-spy` puts it beside the interpreter"

    def __init__(self, *, folder: Path) -> None:
        self.folder = folder
        super().__init__(f"py-spy is neither in {folder} nor on the path, so no Python stacks can be read")


class StacksForbidden(ProcessError):
    """The kernel does not let us look into the processes of a job."""

    exit_code = 1

    def __init__(self, *, job: str, workers: int, ptrace_scope: str) -> None:
        self.job, self.workers, self.ptrace_scope = job, workers, ptrace_scope
        self.hint = (
            f"kernel.yama.ptrace_scope is {ptrace_scope}: run this as root, or let root set it to 0"
            if ptrace_scope not in ("", "0")
            else "run this as the job's owner or as root; containers need the capability SYS_PTRACE"
        )
        super().__init__(f"the kernel forbids to look into the {workers} workers of job {job}")
