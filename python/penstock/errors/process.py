"""Errors of jobs."""

from pathlib import Path
from typing import ClassVar

from penstock.errors.root import PenstockError


class ProcessError(PenstockError):
    """Something about jobs and their processes."""


class AgentMissing(ProcessError):
    """The executable that supervises is not there."""

    hint = "in a checkout `make demo` or `make test` builds it; a wheel has it inside"

    def __init__(self, *, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is missing, so no job can be started")


class HomeUnwritable(ProcessError):
    """The directory of a job cannot be made: no permission, a file system that is full or only read."""

    exit_code = 1
    hint = "set PENSTOCK_HOME to a directory that can be written"

    def __init__(self, *, home: Path, reason: str) -> None:
        self.home, self.reason = home, reason
        super().__init__(f"a job needs a directory of its own in {home}: {reason}")


class JobUnknown(ProcessError):
    """No job has that name, or more than one."""

    def __init__(self, *, wanted: str, home: Path, known: list[str]) -> None:
        self.wanted, self.home, self.known = wanted, home, known
        some = ", ".join(known[-8:])
        self.hint = f"known jobs are {some}" if known else "`penstock run --detach -- COMMAND` starts one"
        super().__init__(f"there is no job {wanted!r} in {home}")


class JobAmbiguous(ProcessError):
    """Several jobs have names that begin as asked for."""

    def __init__(self, *, wanted: str, matching: list[str]) -> None:
        self.wanted, self.matching = wanted, matching
        some = ", ".join(matching[-8:])
        self.hint = f"one of {some}" if len(matching) <= 8 else f"the newest of them are {some}"
        super().__init__(f"{len(matching)} jobs have names that begin with {wanted!r}")


class JobInvalid(ProcessError):
    """A job that makes no sense, with the role and the field."""

    def __init__(self, *, field: str, reason: str, role: str | None = None, hint: str | None = None) -> None:
        self.role, self.field, self.reason, self.hint = role, field, reason, hint
        where = "the job" if role is None else f"role {role!r}"
        super().__init__(f"{where}: {field} {reason}")


class JobFileInvalid(ProcessError):
    """A job file that makes no sense, with the place in it."""

    def __init__(
        self, *, path: Path, place: str, reason: str, line: int | None = None, hint: str | None = None
    ) -> None:
        self.path, self.line, self.place, self.reason, self.hint = path, line, place, reason, hint
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: {place}: {reason}" if place else f"{where}: {reason}")


class RankUnknown(ProcessError):
    """A job has no such rank, or it does not run."""

    def __init__(self, *, job: str, wanted: str, reason: str, hint: str | None = None) -> None:
        self.job, self.wanted, self.reason, self.hint = job, wanted, reason, hint
        super().__init__(f"rank {wanted} of job {job}: {reason}")


class IncidentUnknown(ProcessError):
    """A job has no such incident."""

    def __init__(self, *, job: str, wanted: int | None, known: list[str]) -> None:
        self.job, self.wanted, self.known = job, wanted, known
        self.hint = f"there are {', '.join(known)}" if known else "incidents are written when something fails"
        which = "no incident" if wanted is None else f"no incident {wanted}"
        super().__init__(f"job {job} has {which}")


class StateUnreadable(ProcessError):
    """What is known about a job was written by another Penstock, or is damaged."""

    exit_code = 1
    hint = "its logs can be read all the same; remove its directory when you need it no more"

    def __init__(self, *, job: str, path: Path, reason: str) -> None:
        self.job, self.path, self.reason = job, path, reason
        super().__init__(f"the state of job {job} in {path} cannot be read: {reason}")


class JobSilent(ProcessError):
    """The agent of a job does not answer."""

    exit_code = 1
    hint = "`penstock jobs` shows what is known; `penstock logs` still works"

    def __init__(self, *, job: str, reason: str, hint: str | None = None) -> None:
        self.job, self.reason = job, reason
        if hint is not None:
            self.hint = hint
        super().__init__(f"the agent of job {job} does not answer: {reason}")


class JobElsewhere(JobSilent):
    """A job of other hosts, with a command that reaches one of them, where there is one."""

    def __init__(self, *, job: str, reason: str, hint: str, reach: list[str]) -> None:
        self.reach = reach
        super().__init__(job=job, reason=reason, hint=hint)


class SaveUnheard(ProcessError):
    """Ranks of a job were to save, and not all of them have heard it."""

    exit_code = 1

    def __init__(self, *, job: str, reason: str, hint: str | None = None) -> None:
        self.job, self.reason, self.hint = job, reason, hint
        super().__init__(f"job {job}: {reason}")


class SlotsUnreadable(ProcessError):
    """What is held on this machine cannot be read."""

    hint = "the directory of locks is $PENSTOCK_SLOTS, or one of your own in /tmp"

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"what is held cannot be read: {reason}")


class SlotsImpossible(ProcessError):
    """A job wants more than this machine has, so it would never start."""

    hint = "`penstock slots` shows what there is"

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


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


class HostsInvalid(ProcessError):
    """A list of hosts that makes no sense, with the option and what was given."""

    def __init__(self, *, option: str, value: str, reason: str, hint: str | None = None) -> None:
        self.option, self.value, self.reason, self.hint = option, value, reason, hint
        super().__init__(f"{option} {value}: {reason}")


class JoinInvalid(ProcessError):
    """Hosts that are to be one job, with too little or contradictory to say about it."""

    def __init__(self, *, reason: str, hint: str | None = None) -> None:
        self.reason, self.hint = reason, hint
        super().__init__(reason)


class KeyMissing(ProcessError):
    """Hosts are to join, and this one has no key."""

    def __init__(self, *, path: Path) -> None:
        self.path = path
        self.hint = (
            f"`penstock hosts key` makes one; `scp -p {path} HOST:{path}` copies it to every other host;"
            " `--no-key` joins in the open, as torchrun does"
        )
        super().__init__(f"hosts that join need a common key, and there is none in {path}")


class KeyUnsafe(ProcessError):
    """A key that others may know."""

    def __init__(self, *, path: Path, reason: str, hint: str | None = None) -> None:
        self.path, self.reason = path, reason
        self.hint = hint or "`penstock hosts key` makes one of your own where there is none"
        super().__init__(f"the key {path} {reason}")


class KeyDamaged(ProcessError):
    """A key file that holds no key."""

    hint = "remove it, `penstock hosts key` makes another, and copy that to every host"

    def __init__(self, *, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"the key {path} {reason}")


class HostUnreachable(ProcessError):
    """A host whose name has no address, or that no interface leads to."""

    exit_code = 1
    hint = "`getent hosts NAME` shows what a name means here; --rdzv-endpoint takes an address as well"

    def __init__(self, *, host: str, reason: str) -> None:
        self.host, self.reason = host, reason
        super().__init__(f"host {host} cannot be reached: {reason}")


class InterfaceUnknown(ProcessError):
    """A network interface that this host does not have, or that has no address."""

    def __init__(self, *, interface: str, known: list[str]) -> None:
        self.interface, self.known = interface, known
        self.hint = f"interfaces with an address are {', '.join(known)}"
        super().__init__(f"--interface {interface}: this host has no such interface with an address")


class HostTaken(ProcessError):
    """A host runs that job already."""

    exit_code = 1

    def __init__(self, *, job: str, directory: Path, host: str) -> None:
        self.job, self.directory, self.host = job, directory, host
        self.hint = f"`penstock stop {job}` ends it; another --rdzv-id is another job"
        super().__init__(f"host {host} runs job {job} already, in {directory}")


class DirectoryUnshippable(ProcessError):
    """The directory of ``--ship`` cannot be sent to the hosts of a job, so nothing is started."""

    hint = "files that git ignores are left out, and links may lead inside only"

    def __init__(self, *, directory: Path, problems: list[str], hint: str | None = None) -> None:
        self.directory, self.problems = directory, problems
        if hint is not None:
            self.hint = hint
        super().__init__(f"--ship {directory}: {'; '.join(problems)}")


class StateUnusable(ProcessError):
    """The directory of ``--state``, or the place on a store that it names, cannot be used on this host."""

    hint = "--state must be a directory, or a place on an object store, that every host of the job can write"

    def __init__(self, *, place: Path | str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(f"state directory {place}: {reason}")


class HostsMissing(ProcessError):
    """Hosts that could not be started, each with its own words."""

    exit_code = 1
    hint = "`ssh -o BatchMode=yes HOST true` must work for every host; ~/.ssh/config is used"

    def __init__(self, *, asked: int, here: int, problems: dict[str, str]) -> None:
        self.asked, self.here, self.problems = asked, here, problems
        some = [f"{host}: {words}" for host, words in list(problems.items())[:8]]
        more = [f"and {len(problems) - 8} more"] if len(problems) > 8 else []
        super().__init__(" · ".join([f"{asked} asked", f"{here} here", *some, *more]))


class AgentUnusable(ProcessError):
    """The agent that a launcher copied to a host does not run there."""

    exit_code = 1
    hint = "hosts need the launcher's kind of processor; the agent of a wheel needs glibc 2.28, that of a checkout its builder's"

    def __init__(self, *, agent: Path, reason: str) -> None:
        self.agent, self.reason = agent, reason
        super().__init__(f"the agent {agent} does not run on this host: {reason}")


class BundleInvalid(ProcessError):
    """What a launcher sent to a host is not what this Penstock understands."""

    exit_code = 1
    hint = "launcher and hosts need the same Penstock"

    def __init__(self, *, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the launcher sent something else than a job: {reason}")


class ProfileInvalid(ProcessError):
    """A profile of faults that makes no sense, with the cause and the field."""

    def __init__(
        self, *, place: str, reason: str, cause: str = "", field: str = "", hint: str | None = None
    ) -> None:
        self.place, self.cause, self.field, self.reason = place, cause, field, reason
        if hint is not None:
            self.hint = hint
        where = f", cause {cause!r}" if cause else ""
        what = f"{field} {reason}" if field else reason
        super().__init__(f"profile {place}{where}: {what}")


class SimulationInvalid(ProcessError):
    """An imagined job that makes no sense, with the field."""

    _HINTS: ClassVar[dict[str, str]] = {
        "causes": "fewer hosts, a shorter --for, or smaller rates: such a job would do nothing but restart",
        "save_every": "a longer --save-every, or a shorter --save and --write",
        "lease": "as `penstock run --lease`, 2s or longer",
    }

    def __init__(self, *, field: str, reason: str, hint: str | None = None) -> None:
        self.field, self.reason = field, reason
        hint = self._HINTS.get(field) if hint is None else hint
        if hint is not None:
            self.hint = hint
        super().__init__(f"{field.replace('_', '-')}: {reason}")
