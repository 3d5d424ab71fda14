"""What one host keeps of a job of many, and how the others' files are found.

A job of many hosts has two kinds of directories. The *host directory* is on a local disk and has what the directory of a job on one
machine has: description, state, socket, pulses, logs. The *job directory* lies in ``$PENSTOCK_HOME``, which hosts may share: it has the
description and a line for each host that says where its directory is.

    $PENSTOCK_LOCAL/jobs/JOB/   job.json  host.json  key  logs/  incidents/  …
    $PENSTOCK_HOME/jobs/JOB/    job.json  host_directories/HOST  state/
"""

import json
import os
import platform
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.errors import StoreError
from penstock.errors.process import HomeUnwritable, HostTaken, StateUnusable
from penstock.process.hosts.addresses import is_loopback
from penstock.process.hosts.shipping.packed_directory import PLACE, SHIPMENT, sweep
from penstock.process.job.catalogue import FINAL, Job
from penstock.process.job.launch import fill_directory
from penstock.process.job.local_home import HOST_DIRECTORIES, HOST_FILE

KEY_FILE = "key"
#: A directory without a state is that of a start that died, when it is older than any start takes.
START_S = 120.0
TRIES = 1000
#: Hosts that a directory can break the tie of, and its name in the job's directory.
TIE_HOSTS, STATE = 2, "state"
#: What the agent expects there (vote/tie_breaker.rs).
STATE_FOLDERS = ("terms", "journal", "hosts")


@dataclass(frozen=True, kw_only=True)
class HostFile:
    """``host.json``: what the agent of a host has to know about its place among others."""

    name: str
    #: Where others reach this host.
    address: str
    #: Where hosts meet; the founder listens there.
    endpoint: str
    founder: bool
    nnodes: int
    #: The same as people wrote it, where that is a name, which may come to mean another address.
    endpoint_name: str = ""
    #: With how many hosts it may go on, and how long a lost one is waited for before; none where their number is fixed.
    sizes: list[int] = field(default_factory=list)
    replace_within_ms: int = 600_000
    #: Whether a job that got smaller asks its ranks to save and leave when there are more hosts, instead of waiting for its next restart.
    grow_saved: bool = False
    #: Who starts further hosts: ``attached``, a launcher that is logged in to them, or ``detached``, nobody any more. Else hosts come by themselves.
    starter: str | None = None
    #: How many hosts whoever starts them could start; none where all that the job has.
    comes: int | None = None
    #: Whether this host stands back for others when the job is founded.
    spare: bool = False
    node_rank: int | None = None
    slots: int = 0
    rack: str = ""
    #: 0: any free one.
    port: int = 0
    lease_ms: int = 30_000
    fanout: int = 64
    host_wait_ms: int = 600_000
    #: A directory that all hosts may see: it breaks the tie of two, and a job that is started again continues from it.
    state: str | None = None
    #: Whether somebody asked for it; else the job begins without it where not all hosts see it.
    state_asked: bool = False
    #: Whether this start continues what is there, with its budgets and numbers of lives.
    continues: bool = False
    interface: str | None = None
    mixed: bool = False
    #: Names of all hosts, where they are known: for sentences about who is missing.
    expected: list[str] = field(default_factory=list)
    #: Whether hosts join without a key: everyone who reaches the endpoint may join.
    open: bool = False
    #: When the engine will end the job, in seconds since 1970.
    ends_at: float | None = None
    #: Random, of this start of this host.
    host: str = field(default_factory=lambda: os.urandom(8).hex())
    versions: dict[str, str] = field(default_factory=lambda: versions())
    #: Whether the job brings a directory along, of which each host gets a copy.
    ships: bool = False
    #: That directory as it was packed, on the host that has it first; it is moved from there.
    ship_from: str | None = None
    #: Where failures of hosts are remembered, if not in the home.
    history: str = ""
    #: The home whose job this is, and the job's directory in it.
    home: str = ""
    job_directory: str = ""

    def to_json(self) -> dict[str, Any]:
        """As the agent reads it."""
        return asdict(self)


def versions() -> dict[str, str]:
    """What must be the same on all hosts, unless ``--mixed``."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        agent = version("penstock")
    except PackageNotFoundError:
        agent = "unknown"
    return {"agent": agent, "python": platform.python_version()}


@dataclass(frozen=True, kw_only=True)
class HostPlace:
    """Where a host puts a job: its home, its local disk, logs elsewhere if somebody wishes so, and variables with secrets to hide."""

    home: Path
    local: Path
    logs: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def furnish_host(place: HostPlace, description: dict[str, Any], host: HostFile, secret: bytes) -> Path:
    """Make the host directory of a job and the job's directory in the home; the host directory."""
    job = str(description["id"])
    job_directory = place.home / "jobs" / job
    try:
        directory, number = _own_directory(place.local, job, host)
        if number:
            host = replace(host, name=f"{host.name}+{number}")
        job_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if host.state is None and host.nnodes == TIE_HOSTS:
            host = replace(host, state=str(job_directory / STATE))
        if host.state is not None:
            host = replace(host, state=_enter_state(host))
        _write(
            directory / HOST_FILE,
            json.dumps({**host.to_json(), "home": str(place.home), "job_directory": str(job_directory)}),
        )
        _write(directory / KEY_FILE, secret.hex() + "\n")
        if host.ships:
            sweep(directory.parent)
            description = _in_copy(description, directory / PLACE)
        if host.ship_from is not None:
            shutil.move(host.ship_from, directory / SHIPMENT)
        fill_directory(directory, description, place.logs, place.environment)
        _publish(job_directory, directory, host.name)
    except OSError as problem:
        where = place.local if str(place.local) in str(problem.filename or "") else place.home
        raise HomeUnwritable(home=where, reason=problem.strerror or str(problem)) from problem
    return directory


def _in_copy(description: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same job in its copy of a directory, which is there when ranks begin. A zygote would have to be there before."""
    roles = [
        {**role, "directory": None, "zygote": None, "zygote_why": "executed: --ship"}
        for role in description["roles"]
    ]
    return {**description, "directory": str(folder), "roles": roles, "ships": True}


def _enter_state(host: HostFile) -> str | None:
    """Leave a mark in the state directory, by which others know that this host sees it; nothing where it cannot be used and nobody asked."""
    assert host.state is not None
    place = Path(host.state)
    if "://" in host.state:
        _enter_store(host.state, host.host)
        return host.state
    try:
        for folder in STATE_FOLDERS:
            (place / folder).mkdir(parents=True, exist_ok=True, mode=0o700)
        (place / "hosts" / host.host).touch(mode=0o600)
    except OSError as problem:
        if host.state_asked:
            raise StateUnusable(place=place, reason=problem.strerror or str(problem)) from problem
        return None
    return host.state


def _enter_store(url: str, host: str) -> None:
    """The same on an object store, which nobody uses without having asked for it."""
    from penstock.process.hosts.state_store import enter_state_store

    try:
        enter_state_store(url, host)
    except StoreError as problem:
        raise StateUnusable(place=url, reason=str(problem)) from problem


def _publish(job_directory: Path, directory: Path, name: str) -> None:
    """Say in the job's directory where the host's is. Hosts that share the home write the same description."""
    lines = job_directory / HOST_DIRECTORIES
    lines.mkdir(exist_ok=True)
    _replace(lines / name, f"{directory}\n")
    if not (job_directory / "job.json").exists():
        _replace(job_directory / "job.json", (directory / "job.json").read_text())


def _own_directory(local: Path, job: str, host: HostFile) -> tuple[Path, int]:
    """A new directory for a job on this host; that of an earlier start of the same name is moved aside.

    Hosts that meet at a loopback address are all on this machine, as people try things out: they get ``JOB``, ``JOB+1`` and so on.
    """
    folder = local / "jobs"
    local.mkdir(parents=True, exist_ok=True, mode=0o700)
    if local.stat().st_uid != os.geteuid():
        # A directory in /tmp that somebody else made first could read what is put there.
        raise PermissionError(1, f"belongs to user {local.stat().st_uid}", str(local))
    folder.mkdir(exist_ok=True, mode=0o700)
    number = 0
    for _ in range(TRIES):
        directory = folder / (f"{job}+{number}" if number else job)
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            if _is_over(directory):
                directory.rename(_free_name(directory))
            elif is_loopback(host.address) and number + 1 < host.nnodes:
                number += 1
            else:
                raise HostTaken(job=job, directory=directory, host=host.name) from None
            continue
        return directory.resolve(), number
    raise HostTaken(job=job, directory=folder / job, host=host.name)


def _is_over(directory: Path) -> bool:
    job = Job(directory)
    if job.phase() != "starting":
        return job.phase() in (*FINAL, "lost", "unreadable")
    try:
        return time.time() - directory.stat().st_mtime > START_S
    except FileNotFoundError:
        return True


def _free_name(directory: Path) -> Path:
    """``JOB.1``, ``JOB.2``: earlier starts stay readable."""
    numbers = (directory.with_name(f"{directory.name}.{number}") for number in range(1, TRIES))
    return next(path for path in numbers if not path.exists())


def _write(path: Path, text: str) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(number, "w") as file:
        file.write(text)


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    beside.write_text(text)
    beside.rename(path)
