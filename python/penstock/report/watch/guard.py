"""Keeps a watcher running: starts it again when it was killed, and ends with whatever it was started for. Imports next to nothing.

The watcher knows its guard too, and takes its place when that is killed, so one kill ends neither.
"""

import os
import select
import signal
import subprocess
import sys
import time

#: So many early failures in a row are followed by a start at once; then waits are doubled, up to this.
_AT_ONCE = 5
_WAIT_MIN_S, _WAIT_MAX_S = 0.1, 2.0
#: A watcher that lived so long did not fail early.
_SOUND_S = 5.0
#: After so many early failures in a row nothing is started any more.
_FAILURES_MAX = 20
_END_S = 5.0


def guard(words: list[str], until: int | None) -> int:
    """Run ``python -m penstock.report.watch`` with some words until it ends in order, or a process has ended."""
    process = None if until is None else _pidfd(until)
    if until is not None and process is None:
        return 0
    ending: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: ending.append(number))
    woken, waking = os.pipe()
    for descriptor in (woken, waking):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(waking)
    failures = 0
    while failures < _FAILURES_MAX and not ending:
        began = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-m", "penstock.report.watch", *words, "--guarded-by", str(os.getpid())],
            stdin=subprocess.DEVNULL,
        )
        own = os.pidfd_open(child.pid)
        poll = select.poll()
        for descriptor in filter(None, (own, process, woken)):
            poll.register(descriptor, select.POLLIN)
        poll.poll()
        os.close(own)
        if ending or (process is not None and _has_ended(process)):
            _end(child)
            return 0
        if child.wait() == 0:
            return 0
        failures = 0 if time.monotonic() - began > _SOUND_S else failures + 1
        # A few are kills most likely, and it begins again at once; a row of them is something that waiting may help.
        late = failures - _AT_ONCE
        wait_s = min(_WAIT_MIN_S * 2**late, _WAIT_MAX_S) if late > 0 else 0.0
        select.select(
            [descriptor for descriptor in (process, woken) if descriptor is not None], [], [], wait_s
        )
    if failures >= _FAILURES_MAX:
        sys.stderr.write(
            f"penstock: warning: the watcher failed {failures} times and is not started again; training goes on"
            "\n"
        )
    return 1 if failures >= _FAILURES_MAX else 0


def become_guard(words: list[str]) -> None:
    """Take the place of a guard that was killed; this process starts a watcher of its own."""
    os.execv(sys.executable, [sys.executable, "-m", "penstock.report.watch", "--guard", *words])  # noqa: S606


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _has_ended(process: int) -> bool:
    return bool(select.select([process], [], [], 0)[0])


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(timeout=_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
