"""A rank with a difficult family: a child that ignores SIGTERM, one in a session of its own, and one forked twice.

Each writes its number down as `$MARKS/PID.pid`, and then waits for ever.
"""

import os
import signal
import sys
from pathlib import Path

MARKS = Path(os.environ["MARKS"])


def settle() -> None:
    """Write the number down, then wait for a signal that kills."""
    (MARKS / f"{os.getpid()}.pid").write_text(os.environ["RANK"])
    while True:
        signal.pause()


def bear(*, deaf: bool = False, session: bool = False, twice: bool = False) -> None:
    """Fork a child that settles."""
    if os.fork():
        return
    if deaf:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    if session:
        os.setsid()
    if twice and os.fork():
        os._exit(0)
    settle()


bear()
bear(deaf=True)
bear(deaf=True, session=True)
bear(deaf=True, session=True, twice=True)
if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
settle()
