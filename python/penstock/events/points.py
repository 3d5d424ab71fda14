"""Points: named moments at which a rehearsal of failures can end, hold up or trip a process.

What a run does when it dies between two writes is known only if it was tried. ``PENSTOCK_POINTS="state.part=kill"`` ends the process
with SIGKILL the first time it reaches that point; ``=kill@3`` the third time, ``=hold:2.5`` waits, ``=full`` raises "no space left".
Without the variable a point costs a look at an empty dict.
"""

import errno
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass

VARIABLE = "PENSTOCK_POINTS"


@dataclass(frozen=True, slots=True)
class _Plan:
    action: str
    argument: str
    #: At which of its visits the point acts; 0 for every one.
    visit: int


def _parse(text: str) -> dict[str, _Plan]:
    plans = {}
    for setting in filter(None, text.split(",")):
        name, _, rest = setting.partition("=")
        rest, _, visit = rest.partition("@")
        action, _, argument = rest.partition(":")
        if action not in ("kill", "hold", "full") or (visit and not visit.isdecimal()):
            raise ValueError(
                f"{VARIABLE}: {setting!r} is none of point=kill, point=hold:SECONDS, point=full, with @VISIT"
            )
        plans[name] = _Plan(action, argument, int(visit) if visit else (0 if action == "hold" else 1))
    return plans


_plans = _parse(os.environ.get(VARIABLE, ""))
_visits: Counter[str] = Counter()
_lock = threading.Lock()


def reach(name: str) -> None:
    """Say that a named moment has come."""
    if not _plans or name not in _plans:
        return
    plan = _plans[name]
    with _lock:
        _visits[name] += 1
        if plan.visit not in (0, _visits[name]):
            return
    if plan.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif plan.action == "hold":
        time.sleep(float(plan.argument))
    else:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
