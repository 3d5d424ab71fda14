"""Notices: "save now", "save and leave by …", wherever they come from.

Under ``penstock run`` they come through the pulse (``penstock.process.pulse``), which also tells the agent how far this rank is.
Elsewhere, and where that is not there, they are signals: SIGTERM asks to save and leave (Slurm, Kubernetes, a person), SIGUSR1 to save and go
on. Ctrl-C asks to save and leave the first time, everywhere. A signal only sets a flag; the loop looks at it between steps, where a state is whole.
"""

import importlib
import math
import os
import signal
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any

#: What a process exits with that has saved and left because it was asked to: "temporary failure, try again" of sysexits.h.
EXIT_LEFT = 75
#: What a process exits with that was asked to leave and could not save in time: an error like any other.
EXIT_UNSAVED = 1
#: Before the limit, for closing files and the interpreter.
CLOSING_S = 0.5


@dataclass(frozen=True, slots=True)
class Notice:
    """A request for a checkpoint now."""

    reason: str
    #: Whether to end after it; and by when, as ``time.time`` counts. 0 when nothing was said.
    leave: bool = False
    leave_by: float = 0.0


class Leave(SystemExit):
    """Ends the process after it has saved, with the exit code that says so; with that of an error if it could not save in time."""

    def __init__(self, notice: Notice, step: int, *, committed: bool = True) -> None:
        #: Whether the checkpoint of the step exists, or time was over before.
        self.notice, self.step, self.committed = notice, step, committed
        super().__init__(EXIT_LEFT if committed else EXIT_UNSAVED)
        if not committed and notice.leave_by:
            # What is being written is not waited for beyond the limit, which whoever sent the notice would enforce.
            _end_at(notice.leave_by, EXIT_UNSAVED)


class Notices:
    """Listens from ``open`` to ``close``. One per process, on the main thread (elsewhere only pulses are heard)."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._heard: Notice | None = None
        self._before: dict[int, Any] = {}
        self._process = _supervised()
        #: The agent's notices are numbered, and stand until the next one.
        self._number = 0
        #: Somebody has asked us to leave: from the save on there is nothing but that save.
        self._leaving = False
        self._closed = True

    def open(self) -> None:
        """Begin to listen. Where the agent gives notices, SIGTERM stays what it is: an end at once."""
        if self._process is not None:
            # Plain steps, whatever an earlier loop has left.
            self._process.phase(None)
        self._closed = False
        if threading.current_thread() is not threading.main_thread():
            return
        # The agent has its own words for the others.
        supervised = (signal.SIGINT,)
        alone = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
        for number in alone if self._process is None else supervised:
            if number == signal.SIGINT and signal.getsignal(number) is not signal.default_int_handler:
                # Ignored (a job in the background of a shell), or the program's own.
                continue
            self._before[number] = signal.signal(number, self._on_signal)

    def close(self) -> None:
        """Signals do what they did before. What comes after a loop has no steps, and is no hang."""
        if self._process is not None and not self._closed:
            self._process.phase("leaving" if self._leaving else "eval")
        self._closed = True
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before = {}

    def pulse(self, step: int) -> None:
        """Tell the agent that a step begins; hear what it has to say."""
        if self._process is not None:
            self._listen(self._process.pulse(step))

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Something that takes longer than a step, and is no hang."""
        nothing: AbstractContextManager[Any] = nullcontext()
        if self._process is None:
            return nothing
        phase: AbstractContextManager[Any] = self._process.phase(name)
        # The agent does not end a process that saves; nothing may look like the end of the save before it is one.
        return nothing if name == "checkpoint" and self._leaving else phase

    def take(self) -> Notice | None:
        """What was heard since the last time."""
        if self._process is not None:
            self._listen(self._process.notice())
        heard, self._heard = self._heard, None
        return heard

    def _listen(self, notice: Any) -> None:
        """A notice of the agent in our words, once."""
        if notice is None or notice.number == self._number:
            return
        self._number = notice.number
        leave = notice.kind != "save"
        # The save is what leaving takes time for, and the agent waits for it.
        leave_by = notice.save_by if math.isfinite(notice.save_by) else 0.0
        self._leaving |= leave
        self._heard = Notice(notice.reason or notice.kind, leave=leave, leave_by=leave_by)

    def hear(self, notice: Notice | None) -> None:
        """Put back what could not be heeded yet."""
        self._heard = self._heard or notice

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if number == signal.SIGUSR1:
            self._heard = self._heard or Notice(name)
        else:
            if number == signal.SIGINT:
                # A person who cannot wait presses it again.
                signal.signal(number, signal.default_int_handler)
                if not self._leaving:
                    os.write(2, b"penstock: saving after this step; once more to stop at once\n")
            if self._process is not None and self._leaving:
                # The agent has said so before, and by when.
                return
            self._heard = Notice(name, leave=True, leave_by=time.time() + self._grace_s)


def _end_at(moment: float, code: int) -> None:
    """End this process at a moment, whatever it still waits for."""

    def end() -> None:
        time.sleep(max(0.0, moment - time.time()))
        os._exit(code)

    threading.Thread(target=end, name="penstock-leave", daemon=True).start()


def _supervised() -> Any:
    """What speaks with the agent of ``penstock run``, if this process has one; None elsewhere."""
    if "PENSTOCK_PULSES" not in os.environ:
        return None
    process = importlib.import_module("penstock.process")
    return process if all(hasattr(process, name) for name in ("pulse", "notice", "phase")) else None
