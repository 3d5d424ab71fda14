"""Whether this machine is fit for training: one check, one verdict, one hint each.

``examine`` only looks, except that measuring the disk writes one temporary file of 64 MiB and removes it.
"""

import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import penstock

Verdict = Literal["ok", "info", "warn", "fail"]

#: Extra of the package -> the module whose presence means that it is installed.
EXTRAS = {"view": "starlette", "torch": "torch", "jax": "jax", "ray": "ray"}
_OPEN_FILES_MIN = 4096
_PROCESSES_MIN = 4096
#: What the agent asks the kernel for, which takes fewer where it may not.
_CONNECTIONS_MIN = 4096
_SHM_BYTES_MIN = 1 << 30
_DISK_BYTES_MIN = 5 << 30
_DISK_PROBE_BYTES = 64 << 20
_DISK_RATE_MIN = 200e6
_GPU_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    verdict: Verdict
    #: What was found, in words and numbers.
    value: str
    #: What to do about it; empty when nothing needs doing.
    hint: str = ""

    def to_json(self) -> dict[str, str]:
        """The check as plain values."""
        return asdict(self)


def examine(directory: Path | None = None, *, measure_disk: bool = True) -> list[Check]:
    """Look at everything; ``directory`` is where data and checkpoints will live (default: the working directory).

    Measuring the disk writes a file; without it nothing at all is written, as a view promises.
    """
    place = directory or Path.cwd()
    looks: list[Callable[[], list[Check]]] = [
        _python,
        _extras,
        _accelerator,
        _processors,
        _memory,
        _open_files,
        _processes,
        _waiting_connections,
        _shared_memory,
        lambda: _disk(place, measure=measure_disk),
    ]
    return [check for look in looks for check in look()]


def _python() -> list[Check]:
    version = platform.python_version()
    fit: Verdict = "ok" if sys.version_info >= (3, 11) else "fail"
    return [
        Check("penstock", "ok", f"{penstock.__version__} with its Rust core"),
        Check("python", fit, f"{version} on {platform.system()} {platform.machine()}"),
    ]


def _extras() -> list[Check]:
    checks = []
    for extra, module in EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            checks.append(
                Check(f"extra {extra}", "info", "not installed", f"pip install '{_package(extra)}' if needed")
            )
        else:
            checks.append(Check(f"extra {extra}", "ok", f"{module} {importlib.metadata.version(module)}"))
    return checks


def _package(extra: str) -> str:
    return "penstock[view]" if extra == "view" else extra


def _accelerator() -> list[Check]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return [Check("accelerator", "info", "no NVIDIA driver found", "training will use the processors")]
    query = [command, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as reason:
        return [Check("accelerator", "fail", f"nvidia-smi does not answer: {reason}", "check the driver")]
    if answer.returncode != 0:
        return [
            Check("accelerator", "fail", answer.stderr.strip() or answer.stdout.strip(), "check the driver")
        ]
    return [Check("accelerator", "ok", line.strip()) for line in answer.stdout.splitlines() if line.strip()]


def _processors() -> list[Check]:
    allowed = len(os.sched_getaffinity(0))
    present = os.cpu_count() or allowed
    value = f"{allowed} usable" if allowed == present else f"{allowed} usable of {present}"
    quota = _first_line("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        return [
            Check(
                "processors", "info", f"{value}, limited to {int(quota[0]) / int(quota[1]):.1f} by the cgroup"
            )
        ]
    return [Check("processors", "ok", value)]


def _memory() -> list[Check]:
    total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _first_line("/sys/fs/cgroup/memory.max")
    if limit.isdigit() and int(limit) < total_bytes:
        return [
            Check("memory", "info", f"{_size(int(limit))} by the cgroup, {_size(total_bytes)} in the machine")
        ]
    return [Check("memory", "ok", _size(total_bytes))]


def _open_files() -> list[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = f"{soft} (may be raised to {hard})"
    if soft >= _OPEN_FILES_MIN:
        return [Check("open files", "ok", value)]
    return [
        Check("open files", "warn", value, f"ulimit -n {min(65536, hard)} before training on many shards")
    ]


def _processes() -> list[Check]:
    """Processes and threads of this user: ranks have many threads, loaders have workers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    cgroup = _first_line("/sys/fs/cgroup/pids.max")
    limits = [int(cgroup)] if cgroup.isdigit() else []
    limits += [] if soft == resource.RLIM_INFINITY else [soft]
    if not limits:
        return [Check("processes", "ok", "not limited")]
    value = f"{min(limits)} of this user"
    if min(limits) >= _PROCESSES_MIN:
        return [Check("processes", "ok", value)]
    most = "more" if hard == resource.RLIM_INFINITY else str(hard)
    hint = f"ulimit -u {most}: a rank with its loaders has hundreds of threads"
    return [Check("processes", "warn", value, hint)]


def _waiting_connections() -> list[Check]:
    """Hosts that join at once wait in the queue of the one that they meet at; who finds it full tries again."""
    longest = _first_line("/proc/sys/net/core/somaxconn")
    if not longest.isdigit():
        return []
    if int(longest) >= _CONNECTIONS_MIN:
        return [Check("waiting connections", "ok", longest)]
    hint = f"sysctl net.core.somaxconn={_CONNECTIONS_MIN} where more than {longest} hosts are to meet here"
    return [Check("waiting connections", "info", longest, hint)]


def _shared_memory() -> list[Check]:
    place = Path("/dev/shm")
    if not place.is_dir():
        return [Check("/dev/shm", "warn", "missing", "mount a tmpfs there; frameworks' own loaders need it")]
    free_bytes = shutil.disk_usage(place).free
    if free_bytes < _SHM_BYTES_MIN:
        return [
            Check(
                "/dev/shm",
                "warn",
                f"{_size(free_bytes)} free",
                "start the container with a larger --shm-size",
            )
        ]
    return [Check("/dev/shm", "ok", f"{_size(free_bytes)} free")]


def _disk(place: Path, *, measure: bool) -> list[Check]:
    try:
        free_bytes = shutil.disk_usage(place).free
        if free_bytes < _DISK_BYTES_MIN:
            return [
                Check("disk", "warn", f"{_size(free_bytes)} free in {place}", "make room before training")
            ]
        if not measure:
            return [Check("disk", "ok", f"{_size(free_bytes)} free in {place}")]
        write_rate, read_rate = _disk_rates(place)
    except OSError as reason:
        return [
            Check(
                "disk", "fail", f"cannot be written to: {reason}", "choose a directory that you may write to"
            )
        ]
    slow = min(write_rate, read_rate) < _DISK_RATE_MIN
    value = f"{_size(free_bytes)} free, writes {_size(write_rate)}/s (synced), reads {_size(read_rate)}/s"
    hint = "checkpoints and cold data will wait for this disk" if slow else ""
    return [Check("disk", "warn" if slow else "ok", value, hint)]


def _disk_rates(place: Path) -> tuple[float, float]:
    """Bytes per second of a synced write, and of a read that the page cache was asked not to serve."""
    chunk = os.urandom(1 << 20)
    with tempfile.NamedTemporaryFile(dir=place, prefix=".penstock-doctor-") as file:
        begun = time.perf_counter()
        for _ in range(_DISK_PROBE_BYTES // len(chunk)):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        written = time.perf_counter()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        again = time.perf_counter()
        while file.read(len(chunk)):
            pass
        return _DISK_PROBE_BYTES / (written - begun), _DISK_PROBE_BYTES / (time.perf_counter() - again)


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().partition("\n")[0].strip()
    except OSError:
        return ""


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
