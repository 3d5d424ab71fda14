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
from penstock.process.engines.allocation import Allocation, Allocator, Standing
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
INTERRUPTED = 130


class ForegroundJob:
    """Follows an allocation to its end."""

    def __init__(self, engine: Allocator, allocation: Allocation, tell: Callable[[str], None]) -> None:
        self._engine, self._allocation, self._tell = engine, allocation, tell
        self._output = engine.output(allocation)
        #: For sentences: ``job 4711 of Slurm``.
        self._called = f"job {allocation.number} of {engine.title}"
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
            self._output.show()
            code = self._engine.end_code(self._allocation)
            if code is not None:
                return self._end(code)
            if time.monotonic() >= self._look_at_s:
                self._look()
            time.sleep(TURN_S)

    def _note_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1

    def _look(self) -> None:
        before, now = self._standing.phase, self._engine.look(self._allocation)
        self._look_at_s = time.monotonic() + (QUEUE_LOOK_S if now.phase == "queued" else RUN_LOOK_S)
        if now.phase == "silent":
            self._say(f"note: {self._engine.title} does not answer ({now.words}); nothing follows from that")
            return
        self._standing = now
        if now.phase == "queued":
            if now.hopeless:
                self._engine.release(self._allocation)
                raise EngineRefused(engine=self._engine.title, words=now.words, hint=now.hopeless)
            self._say(f"note: {self._called} waits: {now.words}{self._place()}")
        elif now.phase == "granted":
            if before != "granted":
                ends = f", until {now.ends}" if now.ends else ""
                self._say(f"note: {self._called} has {len(now.hosts)} hosts: {fold(now.hosts)}{ends}")
            for words in self._engine.tend(self._allocation):
                self._tell(f"note: {words}")
        elif now.phase == "ended" and self._engine.end_code(self._allocation) is None:
            self._lose(now)

    def _place(self) -> str:
        if time.monotonic() >= self._place_at_s:
            self._place_at_s = time.monotonic() + PLACE_LOOK_S
            self._ahead = self._engine.ahead(self._allocation)
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
        while time.monotonic() < until and self._engine.end_code(self._allocation) is None:
            self._output.show()
            time.sleep(TURN_S)
        if self._engine.end_code(self._allocation) is not None:
            return
        self._output.close()
        hint = "--time is how long hosts are kept" if _is_over_time(now.words) else None
        raise AllocationLost(
            engine=self._engine.title, number=self._allocation.number, words=now.words, hint=hint
        )

    def _stop(self, count: int) -> bool:
        """End the job in order, or at once; whether nothing is left to wait for."""
        self._look()
        job = self._engine.job_name(self._allocation)
        if count > 1 or self._standing.phase == "queued" or not job:
            self._engine.release(self._allocation)
            self._tell(f"note: {self._called} is cancelled")
            return self._standing.phase == "queued"
        self._tell(f"note: stopping {job} in order; a second signal cancels it at once")
        for host in self._standing.hosts[:STOPPERS_MAX]:
            try:
                done = subprocess.run(
                    self._engine.reach(self._allocation, [host], self._engine.own_command("stop", job)),
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
        self._engine.release(self._allocation)
        self._tell(f"note: no host of {job} could be asked; {self._called} is cancelled")
        return False

    def _end(self, code: int) -> int:
        """Wait until the hosts are given back; what does not come back is named with the command that does it."""
        until = time.monotonic() + BACK_S
        is_back, now = False, self._standing
        while time.monotonic() < until and not is_back:
            self._output.show()
            # A host that is lost keeps a job of Slurm completing for minutes, and the others are free by then.
            now = self._engine.look(self._allocation)
            is_back = now.phase == "ended" or now.words == "COMPLETING"
            if not is_back:
                time.sleep(10 * TURN_S)
        self._output.close()
        if code and _is_over_time(now.words):
            self._tell(f"error: {self._called} was ended: {now.words}")
            self._tell("hint: --time is how long hosts are kept")
        try:
            if is_back:
                self._engine.forget(self._allocation)
            else:
                self._engine.release(self._allocation)
        except EngineError as problem:
            words = self._engine.release_words(self._allocation)
            self._tell(f"warning: {self._called} may still keep hosts ({problem}): `{words}`")
        return code


def _is_over_time(words: str) -> bool:
    """What Slurm and Kubernetes call a time limit."""
    return "TIMEOUT" in words or "DeadlineExceeded" in words


def run_in_allocation(step: Sequence[str], directory: Path) -> int:
    """Inside of ``salloc`` or a batch script: the hosts are there, and a step of theirs takes this process over."""
    os.chdir(directory)
    sys.stdout.flush()
    os.execvp(step[0], list(step))  # noqa: S606 - a shell would stand between the person and srun
