"""How many threads finish steps at once: all that there are, one where they would only take the GIL from each other, or none.

Threads help where finishing waits (stores, disks) or works outside the GIL (images, large units). Where it is Python all
the time, two threads do no more than one and lose a quarter of it by handing over. Which of them it is shows in processor time:
threads that share a GIL use about one processor together, however many they are. A consumer that then does nothing but wait for
the one thread does its work better itself, since nothing has to be handed over at all.
"""

import threading
import time
from collections.abc import Callable

#: Finished steps that are judged together.
WINDOW = 32
#: Processors that threads use together: below the first they wait, above the second they work beside each other.
_WAITING, _BESIDE = 0.5, 1.3
#: Share of its time that a consumer has for itself: below the first it only waits, above the second it has work of its own.
_IDLE, _BUSY = 0.1, 0.2
#: A single pause of the consumer that is longer, and longer than half a step, is work of its own too.
_PAUSE_S = 0.005
#: Windows before another count is tried again: at first, and at most. Doubled whenever the trial has the same end.
_TRIALS = (8, 512)

Clock = Callable[[], float]


class WorkerCount:
    """Decides how many threads finish steps at once. Told of every beginning and end; any thread may tell."""

    def __init__(self, threads: int, *, now: Clock = time.perf_counter) -> None:
        self._threads = threads
        self._now = now
        self._lock = threading.Lock()
        #: How many may finish steps at once; at none, the consumer does it. Changed here alone.
        self.allowed = threads
        #: Busy just now, and since when it was so.
        self._busy = 0
        self._since = now()
        #: Of this window: seconds with somebody busy, processor seconds, steps.
        self._passed = self._used = 0.0
        self._steps = 0
        #: Of the consumer's window: seconds between its questions, seconds until it had answers, answers.
        self._away = self._waited = 0.0
        self._answers = 0
        #: Whether it waited most of the time, so that threads did all they could.
        self._is_short = False
        #: Windows until another count is tried, and how many it will be after the next trial.
        self._rest = 0
        self._patience = _TRIALS[0]

    def begin(self) -> None:
        """A thread begins to finish a step."""
        with self._lock:
            self._pass()
            self._busy += 1

    def end(self, used_s: float) -> bool:
        """It has, and took so many seconds of a processor; whether more threads are allowed now than before."""
        with self._lock:
            before = self.allowed
            self._pass()
            self._busy -= 1
            self._used += used_s
            self._steps += 1
            if self._steps >= WINDOW:
                self._judge()
                self._passed = self._used = 0.0
                self._steps = 0
            return self.allowed > before

    def answered(self, away_s: float, waited_s: float) -> bool:
        """The consumer asked after some time of its own and waited for the answer; whether more threads are allowed now."""
        if self._threads == 1:
            return False
        with self._lock:
            before = self.allowed
            self._away += away_s
            self._waited += waited_s
            self._answers += 1
            if before == 0 and away_s > max(_PAUSE_S, self._waited / self._answers / 2):
                self.allowed = 1
            if self._answers >= WINDOW:
                share = self._away / max(self._away + self._waited, 1e-9)
                self._is_short = share < _BUSY
                if before == 1 and share < _IDLE:
                    self.allowed = 0
                elif before == 0 and share > _BUSY:
                    self.allowed = 1
                self._away = self._waited = 0.0
                self._answers = 0
            return self.allowed > before

    def _pass(self) -> None:
        now = self._now()
        if self._busy:
            self._passed += now - self._since
        self._since = now

    def _judge(self) -> None:
        if self._threads == 1 or not self._passed:
            return
        processors = self._used / self._passed
        if self._rest:
            self._rest -= 1
        if self.allowed <= 1:
            if processors < _WAITING:
                # It waits after all: for long, since a single thread cannot show that it would not.
                self.allowed, self._rest = self._threads, self._patience
            elif not self._rest:
                self.allowed = self._threads
        elif self._is_short and not self._rest:
            if _WAITING <= processors < _BESIDE:
                self.allowed, self._rest = 1, self._patience
                self._patience = min(2 * self._patience, _TRIALS[1])
            else:
                self._patience = _TRIALS[0]
