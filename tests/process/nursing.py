"""The agent's side of a zygote, in a few lines of Python: for tests of what a rank becomes."""

import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock.process

ENTRY = Path(penstock.process.__file__).parent / "zygote" / "__main__.py"
PATIENCE_S = 60.0
PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37


@contextmanager
def adopting() -> Iterator[None]:
    """Orphans of our children become our children, as they become the agent's."""
    libc = ctypes.CDLL(None)
    before = ctypes.c_int()
    assert libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0) == 0
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


@dataclass
class Program:
    """What a rank is to run."""

    argv: list[str]
    directory: Path
    module: bool = False
    environment: dict[str, str | None] = field(default_factory=dict)
    #: What would be executed, where that matters.
    command: list[str] = field(default_factory=list)


@dataclass
class Ended:
    """How a rank ended: its code as `wait` gives it, and what it wrote."""

    code: int
    out: str
    err: str


@dataclass
class Zygote:
    """A zygote and the socket to it."""

    process: "subprocess.Popen[bytes]"
    talk: socket.socket
    requests: int = 0

    def hear(self) -> dict[str, Any]:
        """The next thing that it says."""
        said: dict[str, Any] = json.loads(self.talk.recv(1 << 16))
        return said

    def bear(
        self, program: Program, ranks: int = 1, outputs: Sequence[Path] | None = None
    ) -> tuple[dict[str, Any], int]:
        """Ask for ranks that write to `N.out` and `N.err`; the answer, and the writing end of their gate."""
        outside, gate = os.pipe()
        folder = program.directory
        workers = []
        files = []
        for rank in range(ranks):
            for stream in ("out", "err"):
                path = folder / f"{rank}.{stream}"
                files.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600))
            workers.append(
                {
                    "rank": rank,
                    "environment": {"RANK": str(rank), **program.environment},
                    "files": ["out", "err"],
                }
            )
        self.requests += 1
        request = {
            "request": self.requests,
            "command": program.command or ["python", *(["-m"] if program.module else []), *program.argv],
            "argv": program.argv,
            "module": program.module,
            "directory": str(folder),
            "files_max": resource.getrlimit(resource.RLIMIT_NOFILE),
            "workers": workers,
        }
        body = os.memfd_create("request")
        os.write(body, json.dumps(request).encode())
        os.lseek(body, 0, os.SEEK_SET)
        socket.send_fds(self.talk, [b"bear"], [body, outside, *files])
        for fd in (body, outside, *files):
            os.close(fd)
        return self.hear(), gate

    def run(self, program: Program, ranks: int = 1) -> list[Ended]:
        """Bear ranks, open the gate, and wait until they have ended."""
        answer, gate = self.bear(program, ranks)
        assert "born" in answer, answer
        os.write(gate, b"." * ranks)
        os.close(gate)
        return [ended(program.directory, rank, pid) for rank, pid in enumerate(answer["born"])]


def ended(folder: Path, rank: int, pid: int) -> Ended:
    """Wait for a rank."""
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, (folder / f"{rank}.out").read_text(), (folder / f"{rank}.err").read_text())


@contextmanager
def zygote(
    *preload: str, flags: Sequence[str] = (), environment: dict[str, str] | None = None, interpreter: str = ""
) -> Iterator[Zygote]:
    """A zygote that is being warmed; its first word has to be heard by the test."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(PATIENCE_S)
    variables = {**os.environ, **(environment or {}), "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [interpreter or sys.executable, *flags, ENTRY, str(theirs.fileno()), "." * 400],
        pass_fds=[theirs.fileno()],
        env=variables,
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    restore = {"OPENBLAS_NUM_THREADS": (environment or os.environ).get("OPENBLAS_NUM_THREADS")}
    ours.send(json.dumps({"preload": preload, "restore": restore, "agent": os.getpid()}).encode())
    with ours, adopting():
        yield Zygote(process, ours)
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)
