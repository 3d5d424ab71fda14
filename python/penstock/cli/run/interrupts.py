"""What Ctrl-C means to somebody who has attached to a job: detach, stop it, or go on looking."""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from penstock.cli.output import say
from penstock.process.job.catalogue import Job
from penstock.process.job.control import stop as ask_to_stop

LOOK_S = 0.4
#: Somebody who is asked and does not answer has left the terminal; the job goes on, and so does its output.
ANSWER_PATIENCE_S = 60.0


@dataclass
class Interrupts:
    """Ctrl-C, counted: the loop asks what is meant, and a second one while it asks means to detach."""

    count: int = 0
    is_stopping: bool = False
    _seen: int = field(default=0, repr=False)

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal."""
        self.count += 1

    def take(self) -> bool:
        """Whether there was one since the last look."""
        seen, self._seen = self._seen, self.count
        return self.count > seen

    @contextmanager
    def noted(self) -> Iterator[None]:
        """For as long as the job is in the foreground."""
        before = signal.signal(signal.SIGINT, self.note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def want_to_detach(self, job: Job) -> bool:
        """Ask what is meant, if there was one, and do it; whether that is to detach."""
        if not self.take():
            return False
        answer = self._ask(job)
        if answer == "stop":
            self.is_stopping = True
            ask_to_stop(job)
        elif answer == "continue":
            say("output continues")
        return answer == "detach"

    def _ask(self, job: Job) -> str:
        """``detach``, ``stop`` or ``continue``. In a pipe there is nobody to ask."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return "detach"
        state = "it is stopping already" if self.is_stopping else "s stops the job"
        sys.stderr.write(f"\n{job.id}: d detaches, {state}, c continues [d] ")
        sys.stderr.flush()
        until = time.monotonic() + ANSWER_PATIENCE_S
        while time.monotonic() < until:
            if self.take():
                sys.stderr.write("\n")
                return "detach"
            if select.select([sys.stdin], [], [], LOOK_S)[0]:
                word = os.read(sys.stdin.fileno(), 64).decode(errors="replace").strip().lower()
                return {"s": "stop", "stop": "stop", "c": "continue", "continue": "continue"}.get(
                    word, "detach"
                )
        sys.stderr.write("no answer; ")
        return "continue"
