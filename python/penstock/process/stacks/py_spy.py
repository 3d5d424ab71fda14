"""Stacks of one process, read from outside by ``py-spy``, or by ``gdb`` where the process is no Python.

The process is stopped for the milliseconds that reading takes. One that is stopped already, or sleeps in the kernel, cannot be
stopped and cannot change either, so it is read as it is.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import msgspec

from penstock.errors import SpyMissing
from penstock.process.stacks.frames import Frame, Thread

#: Of the kernel: sleeps and cannot be stopped; is stopped; is traced.
UNSTOPPABLE = frozenset("DTt")
_GDB_FRAME = re.compile(r"^#\d+\s+(?:0x[0-9a-f]+ in )?(\S+) \(.*?\)(?: (?:from|at) (\S+))?$")
_ADDRESS = re.compile(r"^0x[0-9a-f]+$")
FORBIDDEN = "the kernel forbids it"


class _SpyFrame(msgspec.Struct):
    name: str
    filename: str
    short_filename: str | None
    module: str | None
    line: int


class _SpyThread(msgspec.Struct):
    thread_name: str | None
    os_thread_id: int | None
    frames: list[_SpyFrame]


class Unreadable(Exception):
    """A process whose stacks cannot be read; never leaves this folder."""


def spy_path() -> Path:
    """Where ``py-spy`` is: beside this interpreter, else on the path."""
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    path = beside if beside.exists() else shutil.which("py-spy")
    if path is None:
        raise SpyMissing(folder=beside.parent)
    return Path(path)


def python_stacks(pid: int, *, spy: Path, native: bool, state: str, timeout_s: float) -> tuple[Thread, ...]:
    """The threads of a Python process, the main one first."""
    still = state in UNSTOPPABLE
    if native and still:
        raise Unreadable(f"a process in state {state} cannot be stopped, so its native frames cannot be read")
    words = [str(spy), "dump", "--json", "--full-filenames", *(["--nonblocking"] if still else [])]
    answer = _said([*words, *(["--native"] if native else []), "--pid", str(pid)], timeout_s=timeout_s)
    try:
        threads = msgspec.json.decode(answer, type=list[_SpyThread])
    except msgspec.DecodeError as problem:
        raise Unreadable(f"py-spy answered something else: {problem}") from problem
    threads.sort(key=lambda thread: thread.os_thread_id != pid)
    return tuple(
        Thread(thread.thread_name or "?", tuple(_frame(frame) for frame in thread.frames))
        for thread in threads
    )


def native_stacks(pid: int, *, timeout_s: float) -> tuple[Thread, ...]:
    """The threads of any process, by ``gdb``."""
    gdb = shutil.which("gdb")
    if gdb is None:
        raise Unreadable("it is not Python, and gdb, which reads other programs, is not installed")
    words = [gdb, "-nx", "-batch", "-p", str(pid), "-ex", "thread apply all bt 100"]
    text = _said(words, timeout_s=timeout_s).decode(errors="replace")
    threads = []
    for part in re.split(r"(?m)^Thread ", text)[1:]:
        matches = [_GDB_FRAME.match(line) for line in part.splitlines()]
        frames = tuple(
            Frame(match[1], os.path.basename(match[2] or ""), native=True) for match in matches if match
        )
        threads.append(Thread("", frames))
    if not threads:
        raise Unreadable(FORBIDDEN if "not permitted" in text else "gdb found no threads")
    return tuple(threads)


def _said(words: list[str], *, timeout_s: float) -> bytes:
    variables = {**os.environ, "RUST_BACKTRACE": "0", "DEBUGINFOD_URLS": ""}
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            env=variables,
            check=False,
        )
    except subprocess.TimeoutExpired as problem:
        raise Unreadable(f"no answer within {timeout_s:.1f} s") from problem
    if done.returncode == 0:
        return done.stdout + (done.stderr if words[0].endswith("gdb") else b"")
    said = " ".join(done.stderr.decode(errors="replace").split())
    raise Unreadable(FORBIDDEN if "Permission Denied" in said else said.removeprefix("Error: ")[:300])


def _frame(frame: _SpyFrame) -> Frame:
    if frame.module is None:
        return Frame(frame.name, frame.filename, frame.line)
    # Addresses differ from process to process; without a name, the library is all that can be said.
    function = "?" if _ADDRESS.match(frame.name) else frame.name
    return Frame(function, os.path.basename(frame.module), frame.line, native=True)
