"""Stalls: a consumer that waits too long for a batch is told for what, instead of standing still without a word.

One thread of the process looks at all feeds that somebody waits for. A wait that passes the limit is told once, then again when it
has doubled, and so on: an event ``data.stall``, and a line of the logger ``penstock.data``, with the stage, the object if one is
being fetched, and the age. Looking costs the reading nothing.
"""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock import _rust, events

_log = logging.getLogger("penstock.data")
#: The thread looks this often at most, and at least.
_LOOK_MIN_S, _LOOK_MAX_S = 0.01, 1.0
#: A wait is not told more often than this.
_TOLD_EVERY_MAX_S = 600.0


@dataclass(eq=False)
class StallWatch:
    """The waits of one feed. The consumer says when one begins and ends; the watching thread does the rest."""

    limit_s: float
    #: What the feed is doing now, in a word.
    stage: Callable[[], str]
    #: Which step is waited for, and since when; None between waits.
    waiting: tuple[int, float] | None = None
    count: int = 0
    #: Of waits that were stalls and are over.
    seconds: float = 0.0
    _told_at: float = field(default=0.0, repr=False)

    def begin(self, step: int) -> None:
        """A wait begins."""
        self.waiting = (step, time.monotonic())

    def end(self) -> None:
        """It is over."""
        waited, self.waiting = self.waiting, None
        if waited is not None and (age := time.monotonic() - waited[1]) >= self.limit_s:
            self.seconds += age

    def look(self) -> float:
        """Tell a wait that is too long; after how many seconds to look again."""
        waiting = self.waiting
        if waiting is None:
            return self.limit_s / 2
        step, since = waiting
        age = time.monotonic() - since
        if age < self.limit_s:
            return self.limit_s - age
        if self._told_at <= since:
            self.count += 1
        elif age < 2 * (self._told_at - since) and time.monotonic() - self._told_at < _TOLD_EVERY_MAX_S:
            return age
        self._told_at = time.monotonic()
        self._tell(step, age)
        return age

    def _tell(self, step: int, age: float) -> None:
        stage, held = self.stage(), _flying()
        events.record("data.stall", step=step, stage=stage, held=held, age_s=age)
        _log.warning(
            "step %d is waited for since %.1f s, in stage %s%s", step, age, stage, f": {held}" if held else ""
        )


def _flying() -> str:
    """The object that has been fetched for longest, with its range and age; nothing when none is."""
    in_flight = _rust.store_flying()
    if not in_flight:
        return ""
    verb, url, place, stage, age = in_flight[0]
    part = "" if place is None else f", bytes {place[0]} to {place[1]}"
    return f"{verb} {url}{part}, {stage} since {age:.1f} s"


class _Watcher:
    """The thread of a process, and the feeds that it looks at."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.watches: weakref.WeakSet[StallWatch] = weakref.WeakSet()
        self.changed = threading.Condition()
        self.running = False

    def add(self, watch: StallWatch) -> None:
        with self.changed:
            self.watches.add(watch)
            if not self.running:
                self.running = True
                threading.Thread(target=self._run, name="penstock-stalls", daemon=True).start()
            self.changed.notify_all()

    def drop(self, watch: StallWatch) -> None:
        with self.changed:
            self.watches.discard(watch)
            self.changed.notify_all()

    def _run(self) -> None:
        while True:
            with self.changed:
                watches = list(self.watches)
                if not watches:
                    self.running = False
                    return
            due = min(watch.look() for watch in watches)
            del watches
            with self.changed:
                self.changed.wait(max(_LOOK_MIN_S, min(_LOOK_MAX_S, due)))


_watcher: _Watcher | None = None
_making = threading.Lock()


def watch(limit_s: float, stage: Callable[[], str]) -> StallWatch:
    """Watch the waits of a feed; ``unwatch`` it when the feed is closed."""
    global _watcher
    stall_watch = StallWatch(limit_s, stage)
    with _making:
        # The thread of a parent does not live in its fork.
        if _watcher is None or _watcher.process != os.getpid():
            _watcher = _Watcher()
        _watcher.add(stall_watch)
    return stall_watch


def unwatch(watched: StallWatch) -> None:
    """Watch it no more."""
    if _watcher is not None and _watcher.process == os.getpid():
        _watcher.drop(watched)
