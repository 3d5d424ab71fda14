"""What /proc says about processes. A process that ends while it is looked at is one about which nothing is known."""

import os
from pathlib import Path

from penstock.process.stacks.frames import Kernel

PROC = Path("/proc")
COMMAND_BYTES_MAX = 4096
#: Below a worker; more are not looked at.
DESCENDANTS_MAX = 10_000


def kernel_of(pid: int) -> Kernel:
    """State, place of waiting and command of a process."""
    words = _read(pid, "cmdline")[:COMMAND_BYTES_MAX]
    fields = _stat(pid)
    waits_in = _read(pid, "wchan").decode(errors="replace").strip()
    return Kernel(
        state=fields[0] if fields else "gone",
        waits_in="" if waits_in == "0" else waits_in,
        threads=int(fields[17]) if fields else 0,
        command=words.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace"),
    )


def children() -> dict[int, list[int]]:
    """The children of every process of this machine, oldest first."""
    by_parent: dict[int, list[int]] = {}
    for name in os.listdir(PROC):
        if name.isdecimal() and (fields := _stat(int(name))):
            by_parent.setdefault(int(fields[1]), []).append(int(name))
    return {parent: sorted(below) for parent, below in by_parent.items()}


def family(pid: int, below: dict[int, list[int]]) -> list[int]:
    """A process and its descendants, nearest first."""
    members = [pid]
    for parent in members:
        if len(members) > DESCENDANTS_MAX:
            break
        members += [child for child in below.get(parent, ()) if child not in members]
    return members


def runs_python(pid: int) -> bool:
    """Whether a process is a Python: by its program, else by what it has loaded."""
    try:
        program = os.path.basename(os.readlink(PROC / str(pid) / "exe"))
    except PermissionError:
        # We will not be let in; that is what has to be said, not that it is something else.
        program = os.path.basename(kernel_of(pid).command.split(" ")[0])
    except OSError:
        return False
    return program.startswith(("python", "pypy")) or b"/libpython" in _read(pid, "maps")


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may have spaces and brackets."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _read(pid: int, name: str) -> bytes:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
