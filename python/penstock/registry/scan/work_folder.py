"""Folders for temporary files, inside the registry where it is a directory, so that outputs are moved and not copied.

Each has a lock file beside it, locked for as long as its owner lives; the kernel drops the lock with the process. Whoever
begins a registration removes the folders whose locks are free: those of processes that were killed.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import StoreDenied, StoreFailed, StoreRefusal
from penstock.store import Store

_LOCK = ".lock"
#: Folders of scans without a lock file were made by an earlier Penstock, or are being made at this moment.
_STALE_S = 24 * 3600
_UNLOCKED = ("penstock-scan-", "penstock-remake-")
_PREFIX = "penstock-"


@contextmanager
def work_folder(registry: Store, purpose: str) -> Iterator[Path]:
    """A folder that is gone afterwards, or after the next sweep if this process is killed."""
    top = _top(registry)
    folder, lock = _make(top, purpose)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _unlink(Path(f"{folder}{_LOCK}"))
        os.close(lock)


def sweep(registry: Store) -> int:
    """Remove the folders of processes that are dead; how many there were."""
    top = _top(registry)
    count = 0
    for path in sorted(top.iterdir()):
        if path.name.endswith(_LOCK):
            count += _remove_if_free(path)
        elif path.name.startswith(_UNLOCKED) and not Path(f"{path}{_LOCK}").exists():
            count += _remove_if_stale(path)
    return count


def _top(registry: Store) -> Path:
    shared = registry.local_path("work")
    place = shared
    if place is None:
        place = Path(tempfile.gettempdir()) / f"{_PREFIX}work-{os.getuid()}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        if shared is None and place.lstat().st_uid != os.getuid():
            raise StoreDenied(verb="write", url=str(place), reason="it belongs to another user")
    except OSError as reason:
        raise _refused(place, reason) from reason
    return place


def _make(top: Path, purpose: str) -> tuple[Path, int]:
    # A sweep may take the lock file away between its making and its locking; then it is made again.
    while True:
        folder = top / f"{_PREFIX}{purpose}-{uuid.uuid4().hex}"
        try:
            lock = os.open(f"{folder}{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, Path(f"{folder}{_LOCK}")):
                folder.mkdir(mode=0o700)
                return folder, lock
        except OSError as reason:
            raise _refused(top, reason) from reason
        os.close(lock)


def _refused(place: Path, reason: OSError) -> StoreRefusal:
    words = reason.strerror or str(reason)
    if isinstance(reason, PermissionError) or reason.errno == errno.EROFS:
        return StoreDenied(verb="write", url=str(place), reason=words)
    full = reason.errno in (errno.ENOSPC, errno.EDQUOT)
    return StoreFailed(verb="write", url=str(place), reason=words, full=full)


def _remove_if_free(lock_file: Path) -> bool:
    try:
        lock = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # Gone, or of another user.
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(lock, lock_file):
            return False
        shutil.rmtree(lock_file.with_name(lock_file.name.removesuffix(_LOCK)), ignore_errors=True)
        _unlink(lock_file)
    except OSError:
        # Its owner lives.
        return False
    finally:
        os.close(lock)
    return True


def _remove_if_stale(folder: Path) -> bool:
    try:
        stale = folder.stat().st_mtime < time.time() - _STALE_S
    except FileNotFoundError:
        return False
    if stale:
        shutil.rmtree(folder, ignore_errors=True)
    return stale


def _is_at(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
