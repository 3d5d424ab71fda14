"""Runs the commands that make a checkout ready, several at a time, and ends them all when one fails."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO, TYPE_CHECKING

from progress import Progress

ROOT = Path(__file__).resolve().parent.parent
LOG_LINES = 40
# How long commands have to end when another one failed.
GRACE_S = 10
READ_BYTES = 1 << 16
LINE_END = re.compile(r"[\r\n]+")
# A line longer than this is shown in part, so that a command without line ends does not fill the memory.
LINE_CHARS_MAX = 4096

if TYPE_CHECKING:
    #: Turns a line of output into how far the command is; None where the line says something else.
    Reader = Callable[[str], "str | None"]


class Unready(Exception):
    """Something is missing or failed; the message is the one line that the person reads, below the end of the output."""

    def __init__(self, message: str, *, output: Sequence[str] = ()) -> None:
        self.output = list(output)
        super().__init__(message)


class Steps:
    """The commands under way. Each has a process group of its own, so that what it started ends with it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(
        self,
        what: str,
        command: Sequence[object],
        *,
        cwd: Path = ROOT,
        environment: dict[str, str] | None = None,
        remedy: str = "",
        reader: Reader | None = None,
    ) -> None:
        """Run one command; the end of its output is shown only when it fails."""
        words = [str(word) for word in command]
        self._progress.begin(what)
        failed = True
        try:
            tail: deque[str] = deque(maxlen=LOG_LINES)
            with self._started(words, cwd, environment) as process:
                assert process.stdout is not None
                for line in lines(process.stdout):
                    how_far = reader(line) if reader is not None else None
                    if how_far is None:
                        tail.append(line)
                    else:
                        self._progress.note(what, how_far)
            failed = process.returncode != 0
        finally:
            self._progress.end(what, failed=failed)
        if failed:
            reason = remedy or f"{what}: `{' '.join(words)}` exited with {process.returncode}"
            raise Unready(reason, output=list(tail))

    def side_by_side(self, chains: Sequence[Callable[[], bool]]) -> bool:
        """Let each chain run its steps in a thread; whether any did something. The first error ends the others and is raised."""
        with ThreadPoolExecutor(max_workers=len(chains)) as pool:
            results = [pool.submit(chain) for chain in chains]
            try:
                done, _ = wait(results, return_when=FIRST_EXCEPTION)
                for result in done:
                    result.result()
            except BaseException:
                self._end(signal.SIGTERM)
                wait(results, timeout=GRACE_S)
                self._end(signal.SIGKILL)
                raise
        return any(result.result() for result in results)

    def _end(self, number: signal.Signals) -> None:
        """Send a signal to every command, and let none begin."""
        with self._lock:
            self._stopped = True
            for process in self._processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    @contextlib.contextmanager
    def _started(
        self, words: list[str], cwd: Path, environment: dict[str, str] | None
    ) -> Iterator[subprocess.Popen[bytes]]:
        with self._lock:
            if self._stopped:
                raise Unready("stopped")
            process = subprocess.Popen(
                words,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            self._processes.add(process)
        try:
            with process:
                yield process
        finally:
            with self._lock:
                self._processes.discard(process)


def lines(stream: IO[bytes]) -> Iterator[str]:
    """The lines of a stream as they come; a carriage return, as progress bars have it, ends one too."""
    rest = ""
    # `read1` gives what is there; `read` would wait for a whole buffer.
    read1: Callable[[int], bytes] = stream.read1  # type: ignore[attr-defined]
    while part := read1(READ_BYTES):
        *whole, rest = LINE_END.split(rest + part.decode(errors="replace"))
        yield from (line for line in whole if line)
        if len(rest) > LINE_CHARS_MAX:
            yield rest
            rest = ""
    if rest:
        yield rest


def interrupt_on_end_signals() -> None:
    """A closed terminal and `kill` end what was started, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def complain(problem: Unready) -> None:
    """The end of the output and the one line, on standard error."""
    for line in problem.output:
        print(line, file=sys.stderr)
    print(f"error: {problem}", file=sys.stderr)
