"""Notices: "save now", "save and leave by …", wherever they come from.

Under ``penstock run`` they come through the pulse (``penstock.process.pulse``), which also tells the agent how far this rank is.
Elsewhere, and where that is not there, they are signals: SIGTERM asks to save and leave (Slurm, Kubernetes, a person), SIGUSR1 to save and go
on. A signal only sets a flag; the loop looks at it between steps, where a state is whole.
"""

import importlib
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any

#: What a process exits with that has saved and left because it was asked to: "temporary failure, try again" of sysexits.h.
EXIT_LEFT = 75
#: From SIGTERM until whoever sent it loses patience, where nothing says when.
GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class Notice:
    """Somebody wants a checkpoint now."""

    reason: str
    #: Whether to end after it; and by when, as ``time.time`` counts. 0 when nothing was said.
    leave: bool = False
    leave_by: float = 0.0


class Leave(SystemExit):
    """Ends the process after it has saved, with the exit code that says so. It is no error."""

    def __init__(self, notice: Notice, step: int) -> None:
        self.notice, self.step = notice, step
        super().__init__(EXIT_LEFT)


class Notices:
    """Listens from ``open`` to ``close``. One per process, on the main thread (elsewhere only pulses are heard)."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._heard: Notice | None = None
        self._before: dict[int, Any] = {}
        self._pulse, self._phase = _supervised()

    def open(self) -> None:
        """Begin to listen. Where the agent gives notices, SIGTERM stays what it is: an end at once."""
        if self._pulse is not None or threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGUSR1):
            self._before[number] = signal.signal(number, self._on_signal)

    def close(self) -> None:
        """Signals do what they did before."""
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before = {}

    def pulse(self, step: int) -> None:
        """Tell the agent that a step begins; hear what it has to say."""
        if self._pulse is not None and (found := self._pulse(step)) is not None:
            self._heard = _translated(found)

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Something that takes longer than a step, and is no hang."""
        return nullcontext() if self._phase is None else self._phase(name)

    def take(self) -> Notice | None:
        """What was heard since the last time."""
        heard, self._heard = self._heard, None
        return heard

    def hear(self, notice: Notice | None) -> None:
        """Put back what could not be heeded yet."""
        self._heard = self._heard or notice

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if number == signal.SIGUSR1:
            self._heard = self._heard or Notice(name)
        else:
            self._heard = Notice(name, leave=True, leave_by=time.time() + self._grace_s)


def _supervised() -> "tuple[Callable[[int], Any] | None, Callable[[str], Any] | None]":
    """The pulse of ``penstock run``, if this process has one."""
    if "PENSTOCK_PULSES" not in os.environ:
        return None, None
    process = importlib.import_module("penstock.process")
    return getattr(process, "pulse", None), getattr(process, "phase", None)


def _translated(found: Any) -> Notice:
    """A notice of the agent in our words, whatever else it carries."""
    leave_by = getattr(found, "leave_by", None)
    return Notice(
        str(getattr(found, "reason", "a notice of the agent")),
        leave=bool(getattr(found, "leave", leave_by is not None)),
        leave_by=float(leave_by or 0.0),
    )
