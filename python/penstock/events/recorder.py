"""Starting and stopping the one recorder of this process."""

import atexit
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock import _rust

SUFFIX = ".pev"
#: A recording does not grow past this unless asked to; later events count as lost.
BYTES_MAX = 1 << 30
_FLUSH_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class EventStatistics:
    """What the recorder has done so far, as of its last drain (every 20 ms)."""

    path: Path
    #: Events on file.
    written: int
    #: Events dropped because the ring, the disk or the file's size limit was full.
    lost: int
    #: Size of the file.
    bytes: int
    #: The last failure to write, if there was one.
    error: str | None


def start(where: str | os.PathLike[str], *, bytes_max: int = BYTES_MAX) -> Path:
    """Begin recording this process's events and return the file they go to.

    ``where`` is a directory (made if missing; the file is named after host, process and time) or a path that ends
    in ``.pev`` and must not exist. A process has one recorder; a forked child starts without one.
    """
    path = Path(where)
    host = socket.gethostname()
    if path.suffix != SUFFIX:
        path.mkdir(parents=True, exist_ok=True)
        path = path / f"{host}-{os.getpid()}-{time.time_ns()}{SUFFIX}"
    _rust.events_start(path, host=host, argv=list(sys.argv), bytes_max=bytes_max)
    return path


def stop() -> None:
    """Write what is left and end the recording. Does nothing when not recording."""
    _rust.events_stop()


def flush(timeout_s: float = _FLUSH_TIMEOUT_S) -> bool:
    """Wait until what was recorded before is on file; False if that took longer than ``timeout_s``."""
    return _rust.events_flush(timeout_s)


def statistics() -> EventStatistics | None:
    """Counts of the running recorder, or None when not recording."""
    counts = _rust.events_statistics()
    path = _rust.events_path()
    if counts is None or path is None:
        return None
    written, lost, size_bytes, error = counts
    return EventStatistics(path=path, written=written, lost=lost, bytes=size_bytes, error=error)


@contextmanager
def recording(where: str | os.PathLike[str], *, bytes_max: int = BYTES_MAX) -> Iterator[Path]:
    """Record during a ``with`` block."""
    path = start(where, bytes_max=bytes_max)
    try:
        yield path
    finally:
        stop()


atexit.register(stop)
os.register_at_fork(after_in_child=_rust.events_abandon)
