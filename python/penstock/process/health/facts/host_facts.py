"""What a host says of itself: versions, disk, memory, limits, GPUs. Each look has a limit, so a host that is ill answers as well."""

import importlib.metadata
import os
import platform
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from penstock.process.exclusion.identity import HostIdentity, own_identity
from penstock.process.health.facts.directory_digest import directory_digest
from penstock.process.health.facts.gpu_facts import GpuLook, look_at_gpus
from penstock.process.health.facts.kernel_log import XidLine, read_xids

#: Packages whose versions have to agree, where they are installed.
PACKAGES = ("torch", "jax", "numpy")
DISK_PROBE_BYTES = 16 << 20
DISK_PIECE_BYTES = 1 << 20
DISK_PROBE_S = 1.0
#: A file system that is not there any more keeps whoever asks, in a state in which no signal ends it.
GPU_S = 10.0
LIMITS = {
    "open files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "locked memory": resource.RLIMIT_MEMLOCK,
}


class DiskFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The file system of a directory."""

    place: str
    free_bytes: int = 0
    total_bytes: int = 0
    #: Of a synced write, in bytes per second; 0: not measured.
    write_rate: float = 0.0
    problem: str = ""


class HostFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of it."""

    identity: HostIdentity = HostIdentity()
    versions: dict[str, str] = {}
    #: Of directories that have to be equal on all hosts, such as the one that was shipped.
    digests: dict[str, str] = {}
    disks: tuple[DiskFacts, ...] = ()
    shm_bytes: int = 0
    shm_free_bytes: int = 0
    memory_bytes: int = 0
    memory_free_bytes: int = 0
    processors: int = 0
    #: -1: not limited.
    limits: dict[str, int] = {}
    gpus: GpuLook = GpuLook()
    #: Nothing where the kernel's log cannot be read.
    xids: tuple[XidLine, ...] | None = None
    #: Equal for two looks between which the machine was not started again.
    boot: str = ""
    #: Seconds since it was.
    up_s: float = 0.0


class Looks(msgspec.Struct, frozen=True):
    """What is looked at."""

    #: Directories whose disks are looked at.
    places: tuple[str, ...] = ()
    measures_disk: bool = True
    #: Directories whose content has to be equal on all hosts.
    directories: tuple[str, ...] = ()
    gpu_patience_s: float = GPU_S


def host_facts(looks: Looks, environment: Mapping[str, str]) -> HostFacts:
    """Look at everything, side by side."""
    disks: dict[str, DiskFacts] = {}
    digests: dict[str, str] = {}
    gpus: list[GpuLook] = []
    work: list[Callable[[], object]] = [
        *(
            lambda place=place: disks.__setitem__(
                place, look_at_disk(Path(place), measures=looks.measures_disk)
            )
            for place in looks.places
        ),
        *(
            lambda place=place: digests.__setitem__(place, directory_digest(Path(place)))
            for place in looks.directories
        ),
        lambda: gpus.append(look_at_gpus(patience_s=looks.gpu_patience_s)),
    ]
    _side_by_side(work, looks.gpu_patience_s + 1.0)
    unheard = f"no answer within {looks.gpu_patience_s:g} s"
    look = gpus[0] if gpus else GpuLook(problem="the GPUs cannot be looked at")
    total, free = _memory()
    shm = _usage(Path("/dev/shm"))
    return HostFacts(
        identity=own_identity(environment, gpus=[gpu.uuid for gpu in look.gpus if gpu.uuid] or None),
        versions={**versions(), **({"driver": look.driver} if look.driver else {})},
        digests={place: digests.get(place, unheard) for place in looks.directories},
        disks=tuple(disks.get(place, DiskFacts(place, problem=unheard)) for place in looks.places),
        shm_bytes=shm[0],
        shm_free_bytes=shm[1],
        memory_bytes=total,
        memory_free_bytes=free,
        processors=len(os.sched_getaffinity(0)),
        limits={name: _limit(number) for name, number in LIMITS.items()},
        gpus=look,
        xids=None if (xids := read_xids()) is None else tuple(xids),
        boot=_first_line(Path("/proc/sys/kernel/random/boot_id")),
        up_s=time.clock_gettime(time.CLOCK_BOOTTIME),
    )


def _side_by_side(work: list[Callable[[], object]], patience_s: float) -> None:
    """What does not end in time is left to itself: a thread in the kernel cannot be ended, and must not keep this process."""
    threads = [threading.Thread(target=one, name="penstock-look", daemon=True) for one in work]
    until = time.monotonic() + patience_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def versions() -> dict[str, str]:
    """Of what runs ranks; found without importing any of it."""
    versions_here = {"python": platform.python_version(), "kernel": platform.release()}
    for package in ("penstock", *PACKAGES):
        try:
            versions_here["agent" if package == "penstock" else package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions_here


def look_at_disk(place: Path, *, measures: bool = True) -> DiskFacts:
    """Room, and how fast a small file becomes durable."""
    try:
        usage = shutil.disk_usage(_existing(place))
        rate = _write_rate(_existing(place)) if measures else 0.0
    except OSError as problem:
        return DiskFacts(str(place), problem=problem.strerror or str(problem))
    return DiskFacts(str(place), usage.free, usage.total, rate)


def _existing(place: Path) -> Path:
    return next(folder for folder in (place, *place.parents) if folder.exists())


def _write_rate(place: Path) -> float:
    piece = os.urandom(DISK_PIECE_BYTES)
    with tempfile.NamedTemporaryFile(dir=place, prefix=".penstock-check-", buffering=0) as file:
        begun, written = time.perf_counter(), 0
        while written < DISK_PROBE_BYTES and time.perf_counter() - begun < DISK_PROBE_S:
            written += file.write(piece)
        os.fsync(file.fileno())
        return written / (time.perf_counter() - begun)


def _usage(place: Path) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(place)
    except OSError:
        return 0, 0
    return usage.total, usage.free


def _memory() -> tuple[int, int]:
    """What a control group leaves is less than what the machine has."""
    fields: dict[str, int] = {}
    for line in _text(Path("/proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdecimal():
            fields[name] = int(words[0]) << 10
    total, free = fields.get("MemTotal", 0), fields.get("MemAvailable", 0)
    limit = _first_line(Path("/sys/fs/cgroup/memory.max"))
    if limit.isdecimal() and int(limit) < total:
        total, free = int(limit), min(free, int(limit))
    return total, free


def _limit(number: int) -> int:
    soft, _ = resource.getrlimit(number)
    return -1 if soft == resource.RLIM_INFINITY else soft


def _first_line(path: Path) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
