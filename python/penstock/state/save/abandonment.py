"""Saves that are under way when a process ends with an error: ranks that are gone are not waited for.

An error that nobody catches leaves threads at work, and Python joins them before anything else. A save that waits for a rank that is
gone would hold the process until its deadline, and with it the restart of the gang.
"""

import sys
import threading
from weakref import WeakSet

_GIVEN_UP: "WeakSet[Event]" = WeakSet()


class Event(threading.Event):
    """Set when there is nothing to wait for any more; at the latest when the process ends with an error."""

    def __init__(self) -> None:
        super().__init__()
        _GIVEN_UP.add(self)


def _leave() -> None:
    if getattr(sys, "last_type", None) is not None:
        for event in list(_GIVEN_UP):
            event.set()


# Called before threads are joined, which ``atexit`` is not; the last that is registered is called first.
threading._register_atexit(_leave)  # type: ignore[attr-defined]
