"""A job on rented hosts, as the launcher that waits for it sees it: the queue, the output, Ctrl-C, and the hosts given back.

The engine is asked at most once in two seconds. An engine that does not answer changes nothing: the output and the end of the job are files,
which its hosts write.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from penstock.errors.engines import AllocationLost, EngineError, EngineRefused
from penstock.process.engines import allocation_directory as files
from penstock.process.engines.allocation import Allocation, Standing
from penstock.process.engines.slurm import SlurmAllocator
from penstock.process.engines.text_tail import TextTail
from penstock.process.questions.host_sets import fold

#: Between looks at the output.
TURN_S = 0.1
#: Between questions to the engine: while the job waits, and while it runs.
QUEUE_LOOK_S, RUN_LOOK_S = 2.0, 10.0
#: Asked for its place less often.
PLACE_LOOK_S = 20.0
#: For a job to begin its end after it was asked to, and for the engine to take the hosts back after the end.
STOP_S, BACK_S = 30.0, 30.0
#: Hosts that are asked to stop the job; each of them can.
STOPPERS_MAX = 3
#: Reasons of Slurm that no waiting changes.
HOPELESS = {
    "PartitionTimeLimit": "--time is more than the queue allows",
    "PartitionNodeLimit": "the queue does not give as many hosts",
    "PartitionConfig": "the queue cannot give this: too many hosts, or not of this kind",
    "BadConstraints": "no host of the cluster fits",
    "AssocMaxNodePerJobLimit": "your account may not have as many hosts",
    "QOSMaxNodePerJob": "the quality of service does not give as many hosts",
}
INTERRUPTED = 130


class ForegroundJob:
    """Follows an allocation to its end."""

    def __init__(self, slurm: SlurmAllocator, allocation: Allocation, tell: Callable[[str], None]) -> None:
        self._slurm, self._allocation, self._tell = slurm, allocation, tell
        directory = allocation.directory
        self._tails = [
            (TextTail(directory / files.OUTPUT), sys.stdout.buffer),
            (TextTail(directory / files.ERRORS), sys.stderr.buffer),
        ]
        self._signals = 0
        self._standing = Standing("queued")
        self._told = ""
        self._look_at_s = self._place_at_s = 0.0
        self._ahead: int | None = None

    def follow(self) -> int:
        """Until the job has ended and its hosts are given back; the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note_signal)
        answered = 0
        while True:
            if self._signals > answered:
                answered = self._signals
                if self._stop(answered):
                    return INTERRUPTED
            self._show()
            code = files.end_code(self._allocation.directory)
            if code is not None:
                return self._end(code)
            if time.monotonic() >= self._look_at_s:
                self._look()
            time.sleep(TURN_S)

    def _note_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1

    def _show(self) -> None:
        for tail, sink in self._tails:
            for piece in tail.read():
                sink.write(piece)
            sink.flush()

    def _look(self) -> None:
        before, now = self._standing.phase, self._slurm.look(self._allocation)
        self._look_at_s = time.monotonic() + (QUEUE_LOOK_S if now.phase == "queued" else RUN_LOOK_S)
        number = self._allocation.number
        if now.phase == "silent":
            self._say(f"note: Slurm does not answer ({now.words}); nothing follows from that")
            return
        self._standing = now
        if now.phase == "queued":
            if now.words in HOPELESS:
                self._slurm.release(self._allocation)
                raise EngineRefused(engine="Slurm", words=now.words, hint=HOPELESS[now.words])
            self._say(f"note: job {number} of Slurm waits: {now.words}{self._place()}")
        elif now.phase == "granted" and before != "granted":
            ends = f", until {now.ends}" if now.ends else ""
            self._say(f"note: job {number} of Slurm has {len(now.hosts)} hosts: {fold(now.hosts)}{ends}")
        elif now.phase == "ended" and files.end_code(self._allocation.directory) is None:
            self._lose(now)

    def _place(self) -> str:
        if time.monotonic() >= self._place_at_s:
            self._place_at_s = time.monotonic() + PLACE_LOOK_S
            self._ahead = self._slurm.ahead(self._allocation)
        ahead = "" if self._ahead is None else f" · {self._ahead} before it"
        begins = f" · begins about {self._standing.begins}" if self._standing.begins else ""
        return f"{ahead}{begins}"

    def _say(self, words: str) -> None:
        if words != self._told:
            self._told = words
            self._tell(words)

    def _lose(self, now: Standing) -> None:
        """The engine ended it. What the hosts wrote may still be on its way through the file system."""
        until = time.monotonic() + 5.0
        while time.monotonic() < until and files.end_code(self._allocation.directory) is None:
            self._show()
            time.sleep(TURN_S)
        if files.end_code(self._allocation.directory) is not None:
            return
        self._show()
        hint = "--time is how long hosts are kept" if "TIMEOUT" in now.words else None
        raise AllocationLost(engine="Slurm", number=self._allocation.number, words=now.words, hint=hint)

    def _stop(self, count: int) -> bool:
        """End the job in order, or at once; whether nothing is left to wait for."""
        self._look()
        job = files.job_name(self._allocation.directory)
        if count > 1 or self._standing.phase == "queued" or not job:
            self._slurm.release(self._allocation)
            self._tell(f"note: job {self._allocation.number} of Slurm is cancelled")
            return self._standing.phase == "queued"
        self._tell(f"note: stopping {job} in order; a second signal cancels it at once")
        for host in self._standing.hosts[:STOPPERS_MAX]:
            words = [sys.executable, "-m", "penstock.cli.main", "stop", job]
            try:
                done = subprocess.run(
                    self._slurm.reach(self._allocation, [host], words),
                    capture_output=True,
                    timeout=STOP_S,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    check=False,
                )
            except (subprocess.TimeoutExpired, OSError):
                continue
            if done.returncode == 0:
                return False
        self._slurm.release(self._allocation)
        self._tell(
            f"note: no host of {job} could be asked; job {self._allocation.number} of Slurm is cancelled"
        )
        return False

    def _end(self, code: int) -> int:
        """Wait until the hosts are given back; what does not come back is named with the command that does it."""
        until = time.monotonic() + BACK_S
        number = self._allocation.number
        while time.monotonic() < until:
            self._show()
            now = self._slurm.look(self._allocation)
            # A host that is lost keeps a job completing for minutes, and the others are free by then.
            if now.phase == "ended" or now.words == "COMPLETING":
                self._show()
                return code
            time.sleep(10 * TURN_S)
        try:
            self._slurm.release(self._allocation)
        except EngineError as problem:
            self._tell(f"warning: job {number} of Slurm may still keep hosts ({problem}): `scancel {number}`")
        return code


def run_in_allocation(step: Sequence[str], directory: Path) -> int:
    """Inside of ``salloc`` or a batch script: the hosts are there, and a step of theirs takes this process over."""
    os.chdir(directory)
    sys.stdout.flush()
    os.execvp(step[0], list(step))  # noqa: S606 - a shell would stand between the person and srun
