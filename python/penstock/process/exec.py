"""Running a command beside a worker: with its environment, directory, processors, control group and namespaces.

The command is a child of whoever asks, not of the worker: it ends with the asker, and the worker does not notice. What the command
itself leaves behind is killed when it is over.
"""

import ctypes
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from penstock.errors import RankUnknown
from penstock.process.job.catalogue import FINAL, GangState, Job
from penstock.process.watch.lineage import Process, children_of, descendants, everyone, process

#: Rounds of killing what a command left; each finds what was forked during the one before.
ROUNDS_MAX = 50
#: In the order in which they have to be entered: the first gives the right to enter the others.
NAMESPACES = {"user": 0x10000000, "mnt": 0x00020000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000}
_SET_DEATH_SIGNAL = 1
_SET_SUBREAPER = 36
#: What a shell says when a command cannot be executed.
CANNOT_EXECUTE, NOT_FOUND = 126, 127


@dataclass(frozen=True)
class Beside:
    """A worker that runs, as somebody beside it has to know it."""

    job: Job
    gang: GangState
    worker: Mapping[str, Any]
    process: Process

    @property
    def name(self) -> str:
        """As people call it."""
        return f"{self.gang.role}-{self.worker['rank']}"

    def environment(self) -> dict[str, str]:
        """The worker's variables. A forked one shows those of its zygote in /proc, so what tells workers apart is added."""
        variables = self.process.environment()
        if self.worker["how"] == "zygote":
            role = next(r for r in self.job.exact_description()["roles"] if r["name"] == self.gang.role)
            rank, ranks, life = str(self.worker["rank"]), str(role["ranks"]), str(self.gang.incarnation or 0)
            variables |= dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), rank)
            variables |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"), ranks)
            variables |= dict.fromkeys(("PENSTOCK_INCARNATION", "TORCHELASTIC_RESTART_COUNT"), life)
            variables |= {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "PENSTOCK_ROLE": self.gang.role}
            variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.gang.master_port)}
            variables |= {"TORCHELASTIC_RUN_ID": self.job.id, "PENSTOCK_JOB": self.job.id}
            variables |= {"PENSTOCK_JOB_DIRECTORY": str(self.job.directory), "PENSTOCK_WORKER": self.name}
            variables |= role["environment"]
        return variables

    def python(self) -> str | None:
        """The interpreter that the worker runs, if it is Python; else the one that the job knows."""
        description = self.job.exact_description()
        role = next(r for r in description["roles"] if r["name"] == self.gang.role)
        first = role["command"][0]
        if Path(first).name.startswith("python"):
            return str(first)
        interpreter = description.get("python")
        return str(interpreter) if interpreter else None


def find_workers(job: Job, wanted: str, role: str | None = None) -> list[Beside]:
    """Workers that run: ``3``, ``0-3,8``, or ``trainer-3``, of one role."""
    state = job.state()
    if state is None or job.phase() in FINAL:
        raise RankUnknown(job=job.id, wanted=wanted, reason="the job does not run")
    roles = list(dict.fromkeys(gang.role for gang in state.gangs))
    named, _, rest = wanted.rpartition("-")
    if role is None and named in roles and rest.isdigit():
        role, wanted = named, rest
    if role is None and len(roles) > 1:
        raise RankUnknown(
            job=job.id,
            wanted=wanted,
            reason="the job has several roles",
            hint=f"say which: {', '.join(f'{name}-0' for name in roles)}, or --role",
        )
    role = role or roles[0]
    if role not in roles:
        raise RankUnknown(
            job=job.id, wanted=wanted, reason=f"there is no role {role}", hint=f"roles are {', '.join(roles)}"
        )
    workers = {w["rank"]: (gang, w) for gang, w in state.workers if gang.role == role}
    return [_beside(job, rank, workers) for rank in _ranks(job, wanted)]


def _ranks(job: Job, wanted: str) -> list[int]:
    ranks: set[int] = set()
    for part in wanted.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) - int(first) > 4096:
            raise RankUnknown(
                job=job.id, wanted=wanted, reason="is not a rank", hint="as in 3, 0-3,8 or trainer-3"
            )
        ranks.update(range(int(first), int(last or first) + 1))
    return sorted(ranks)


def _beside(job: Job, rank: int, workers: Mapping[int, tuple[GangState, dict[str, Any]]]) -> Beside:
    if rank not in workers:
        known = f"ranks are {min(workers)} to {max(workers)}" if workers else "none has been started yet"
        raise RankUnknown(job=job.id, wanted=str(rank), reason="there is none", hint=known)
    gang, worker = workers[rank]
    worker_process = process(worker["pid"], worker["start_ticks"]) if worker["exit"] is None else None
    if worker_process is None or not worker_process.is_alive:
        raise RankUnknown(
            job=job.id,
            wanted=str(rank),
            reason="it does not run",
            hint=f"`penstock ps {job.id}` shows who does",
        )
    return Beside(job, gang, worker, worker_process)


def start(beside: Beside, words: Sequence[str], *, outputs: tuple[int, int] | None = None) -> int:
    """Start a command beside a worker; its number. With ``outputs``, these are its standard output and error, and it has no input."""
    environment = beside.environment()
    me = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _become(beside, list(words), environment, outputs, me)
    except OSError as problem:
        os.write(2, f"error: cannot run {words[0]} beside {beside.name}: {problem.strerror}\n".encode())
        os._exit(NOT_FOUND if isinstance(problem, FileNotFoundError) else CANNOT_EXECUTE)
    finally:
        os._exit(CANNOT_EXECUTE)


def _become(
    beside: Beside,
    words: list[str],
    environment: dict[str, str],
    outputs: tuple[int, int] | None,
    owner: int,
) -> NoReturn:
    """In the child: everything that makes it a neighbour, then the command."""
    _die_with(owner)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    if outputs is not None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
    target = f"/proc/{beside.process.pid}"
    # Opened before anything changes: in another namespace these paths mean something else.
    directory = os.open(f"{target}/cwd", os.O_PATH | os.O_DIRECTORY)
    _join_group(target)
    with suppress(OSError):
        os.sched_setaffinity(0, os.sched_getaffinity(beside.process.pid))
    if _enter(target):
        # A pid namespace holds for children only, so there has to be one.
        middle = os.getpid()
        child = os.fork()
        if child:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
        _die_with(middle, checked=False)
    os.fchdir(directory)
    os.execvpe(words[0], words, environment)  # noqa: S606 - the person's own command, without a shell between


def _die_with(owner: int, *, checked: bool = True) -> None:
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    # The owner may have died before. From inside a namespace its number cannot be compared.
    if checked and os.getppid() != owner:
        os._exit(CANNOT_EXECUTE)


def _join_group(target: str) -> None:
    """Into the worker's control groups, where that is allowed; what it uses is then counted and limited with the worker."""
    with suppress(OSError), open(f"{target}/cgroup", encoding="utf-8") as file:
        for line in file.read().splitlines():
            number, controllers, path = line.split(":", 2)
            names = [""] if number == "0" else [controllers.removeprefix("name=")]
            for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                for name in names:
                    with (
                        suppress(OSError),
                        open(f"{root}/{name}{path}/cgroup.procs", "w", encoding="ascii") as door,
                    ):
                        door.write("0")


def _enter(target: str) -> bool:
    """Into the worker's namespaces where they are not ours; whether its pid namespace is another."""
    different = [
        name
        for name in NAMESPACES
        if os.readlink(f"{target}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")
    ]
    handles = [(name, os.open(f"{target}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)) for name in different]
    libc = ctypes.CDLL(None, use_errno=True)
    for name, handle in handles:
        if libc.setns(handle, NAMESPACES[name]) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{os.strerror(number)} (entering its {name} namespace)")
    return "pid" in different


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


@contextmanager
def nothing_left() -> Iterator[None]:
    """What is started inside is gone afterwards, with all that it started."""
    _prctl(_SET_SUBREAPER, 1)
    # Who came before is not ours to kill.
    before = {descendant.pid for _, descendant in descendants(children_of(everyone()), os.getpid())}
    try:
        yield
    finally:
        for _ in range(ROUNDS_MAX):
            left = [
                descendant
                for _, descendant in descendants(children_of(everyone()), os.getpid())
                if descendant.pid not in before
            ]
            if not left:
                break
            for survivor in left:
                with suppress(ProcessLookupError):
                    os.kill(survivor.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
