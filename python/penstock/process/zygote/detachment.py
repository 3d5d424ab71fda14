"""A forked rank becomes a process of its own: session, descriptors, limits, environment, randomness, and its owner.

All of it happens before the gate, while peers are still being forked, but the tie to the agent: before the gate the agent is not our parent.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import io
import itertools
import os
import resource
import sys
import termios
import time

from .birth import Birth
from .threads import set_counts
from .title import WORKER_MARK

PR_SET_PDEATHSIG = 1
#: Of Yama, which restricts ptrace where it is there; elsewhere the call is refused and changes nothing.
PR_SET_PTRACER = 0x59616D61
SIGKILL = 9
CANNOT_START = 126
LIBC = ctypes.CDLL(None)


def settle(birth: Birth) -> None:
    """Become a process of its own and wait for the gate."""
    os.setsid()
    for name in ("door", "limit"):
        _enter_group(birth.fds.get(name))
    _take_files(birth)
    request = birth.request
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(request["files_max"]))
    if birth.worker.get("mark"):
        # Whatever comes from here is known to be this rank's.
        resource.setrlimit(resource.RLIMIT_RTTIME, tuple(birth.worker["mark"]))
    if birth.worker.get("cpus"):
        os.sched_setaffinity(0, birth.worker["cpus"])
    try:
        os.chdir(request["directory"])
    except OSError as problem:
        os.write(2, f"cannot enter {request['directory']}: {problem.strerror}\n".encode())
        os._exit(CANNOT_START)
    changes = {**birth.warm.first["restore"], **birth.worker["environment"]}
    set_counts(changes, moved=bool(birth.worker.get("cpus")))
    _take_environment(changes)
    _be_random()
    birth.warm.title.show(request["command"], birth.worker["environment"].get(WORKER_MARK))
    # At the end of an interpreter everything is collected; what stays frozen would be reported as leaked by some libraries.
    atexit.register(gc.unfreeze)
    _wait_at_the_gate(birth)


def _enter_group(door: int | None) -> None:
    if door is not None:
        try:
            # Zero is whoever writes. Without the group a rank runs as well, so a refusal is no error.
            os.write(door, b"0")
        except OSError:
            return


def _take_files(birth: Birth) -> None:
    """Standard input, output and error are ours; what was open before the zygote stays; all else is closed."""
    fds = birth.fds
    os.dup2(fds["out"], 1)
    os.dup2(fds["err"], 2)
    if os.isatty(1):
        # As for an interpreter that starts on a terminal: it controls us, and lines are shown when they end. Nobody types there,
        # so standard input stays empty.
        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
    locks = [fd for name, fd in fds.items() if name.startswith("lock")]
    for lock in locks:
        # Also over an exec: a lock lasts as long as whoever uses what is held.
        os.set_inheritable(lock, True)
    kept = {0, 1, 2, fds["gate"], *locks, *birth.warm.kept}
    end = max(map(int, os.listdir("/proc/self/fd"))) + 1
    # The peers' descriptors are among them, hundreds in a large gang: a call for each would be most of what a rank does before it begins.
    for below, above in itertools.pairwise([-1, *sorted(kept), max(end, *kept)]):
        # Python closes everything where a range is empty and begins at zero.
        if below + 1 < above:
            os.closerange(below + 1, above)


def _take_environment(changes: dict[str, str | None]) -> None:
    for name, text in changes.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text
    if "TZ" in changes:
        time.tzset()


def _be_random() -> None:
    """What a fresh process draws for itself. `random` does so by itself; torch begins with the same seed in every process."""
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    if (processes := sys.modules.get("multiprocessing.process")) is not None:
        processes.current_process().authkey = os.urandom(32)
    if (logging := sys.modules.get("logging")) is not None:
        logging._startTime = time.time()  # type: ignore[attr-defined]


def _wait_at_the_gate(birth: Birth) -> None:
    gate = birth.fds["gate"]
    go = os.read(gate, 1)
    os.close(gate)
    if not go:
        os._exit(0)
    LIBC.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    # Where only ancestors may look into a process, the agent's children may as well: they take stacks.
    LIBC.prctl(PR_SET_PTRACER, ctypes.c_ulong(birth.warm.first["agent"]), 0, 0, 0)
    # The agent may have died before the parent-death signal was set.
    if os.getppid() != birth.warm.first["agent"]:
        os._exit(1)
