"""The recorder's second thread: the loop's stack, clocks and memory, looked at from beside it.

About once a second, and every 20 ms while a step lasts longer than twice its usual time. It only holds Python's lock to look; it never waits for the loop.
"""

import os
import random
import statistics
import sys
import threading
from typing import Protocol

from penstock.observe.steps.clock import boottime_ns
from penstock.observe.steps.stack_file import FRAMES_MAX, StackFile

#: Between two looks, in seconds: as a rule, at least, and in a slow step.
USUAL_S, LEAST_S, SLOW_S = 1.0, 0.1, 0.02
#: Looks at one slow step before it is looked at once a second again.
LOOKS_MAX = 500
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watched(Protocol):
    """What the sampler asks of a recorder."""

    #: The loop's thread.
    thread: int

    def under_way(self) -> tuple[int, int] | None:
        """Step and beginning of the step that is under way."""

    def current_part(self) -> str:
        """The part that time belongs to now."""

    def usual_durations(self) -> list[int]:
        """Nanoseconds of the last steps."""

    def every_second(self, rss: int) -> None:
        """A second has passed."""


class Sampler:
    """One thread, ended by ``close``."""

    def __init__(self, watched: Watched, stacks: StackFile | None) -> None:
        self._watched, self._stacks = watched, stacks
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-sampler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join(timeout=5)
        if self._stacks is not None:
            self._stacks.close()

    def _run(self) -> None:
        next_second = next_look = boottime_ns()
        # Looks that come at equal distances would see the same place of every evaluation that does so as well.
        chance = random.Random(next_second)
        pause_s = 0.0
        looks, slow = 0, -1
        while not self._ended.wait(pause_s):
            now = boottime_ns()
            under_way = self._watched.under_way()
            is_second = now >= next_second
            if is_second:
                next_second = now + int(USUAL_S * 1e9)
                self._watched.every_second(_rss())
            durations = self._watched.usual_durations()
            usual = statistics.median(durations) if len(durations) >= 3 else None
            is_slow = usual is not None and under_way is not None and now - under_way[1] > 2 * usual
            if is_slow and under_way is not None:
                looks = looks + 1 if slow == under_way[1] else 1
                slow = under_way[1]
                is_slow = looks <= LOOKS_MAX
            is_usual = now >= next_look
            if is_usual:
                next_look = now + int(chance.uniform(0.5, 1.5) * USUAL_S * 1e9)
            if (is_slow or is_usual) and under_way is not None:
                self._look(under_way[0], now, is_slow=not is_usual)
            pause_s = SLOW_S if is_slow else self._pause(usual, under_way, now)

    def _pause(self, usual: float | None, under_way: tuple[int, int] | None, now: int) -> float:
        """Until the step that is under way would be slow, within limits."""
        if usual is None or under_way is None:
            return LEAST_S
        left_s = (under_way[1] + 2 * usual - now) / 1e9
        return min(USUAL_S, max(LEAST_S, left_s))

    def _look(self, step: int, now: int, *, is_slow: bool) -> None:
        if self._stacks is None:
            return
        # Both are read without giving Python's lock up, so they belong together.
        part, frame = self._watched.current_part(), sys._current_frames().get(self._watched.thread)
        frames: list[str] = []
        while frame is not None and len(frames) < FRAMES_MAX:
            code = frame.f_code
            frames.append(f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}")
            frame = frame.f_back
        if frames:
            self._stacks.add(step, now, tuple(frames), part, is_slow=is_slow)


def _rss() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return -1
