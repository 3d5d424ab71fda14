"""Waiting for other ranks: pauses that grow, and a deadline."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.state.save.abandonment import Event

PAUSE_MIN_S = 0.01
PAUSE_MAX_S = 1.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, as the waits and records of this room see it."""

    #: Seconds since 1970, for records that people read.
    now: Callable[[], float] = time.time
    #: Seconds that never jump, for deadlines.
    ticks: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


class Wait:
    """One wait: ``while not there: if not wait.again(): give up``."""

    def __init__(self, deadline_s: float, clock: Clock, given_up: Event | None = None) -> None:
        self._clock = clock
        #: Set by somebody else when there is nothing to wait for any more.
        self._given_up = given_up
        self._began = clock.ticks()
        self._deadline_s = deadline_s
        self._pause_s = PAUSE_MIN_S

    @property
    def waited_s(self) -> float:
        """Seconds since it began."""
        return self._clock.ticks() - self._began

    def again(self) -> bool:
        """Pause, longer every time, and say whether to look once more. The last look is at the deadline."""
        left_s = self._deadline_s - self.waited_s
        if left_s <= 0 or (self._given_up is not None and self._given_up.is_set()):
            return False
        self._clock.pause(min(self._pause_s, left_s))
        self._pause_s = min(self._pause_s * 1.5, PAUSE_MAX_S)
        return True
