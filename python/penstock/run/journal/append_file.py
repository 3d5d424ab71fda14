"""A file that only grows, one whole entry after another, also on a disk that is full for a while.

What is written with one call is in the file as a whole or not at all. Entries that nobody acts on yet are kept in memory while the disk
has no room and come first when it has; entries that must be there before anything follows from them are an error.
"""

import errno
import logging
import os
from pathlib import Path

from penstock.errors import RunUnwritable

#: Of entries that wait for room.
BACKLOG_BYTES_MAX = 4 << 20
#: What passes: no room, no quota, and a device that fails for the moment.
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
_log = logging.getLogger("penstock.run")


class AppendFile:
    """A file that grows by whole entries. It is made with its first entry."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._backlog = bytearray()

    @property
    def length(self) -> int:
        """How long it is, in bytes."""
        return 0 if self._file is None else os.fstat(self._file).st_size

    def open(self) -> None:
        """Make the file, or go on with the one that is there."""
        if self._file is not None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            sync_folder(self.path.parent)
        except OSError as reason:
            raise RunUnwritable(file=str(self.path), reason=reason.strerror or str(reason)) from reason

    def write(self, entry: bytes, *, sync: bool = False, must: bool = False) -> None:
        """Append an entry; with ``sync`` it is on the disk when this returns, unless that has no room now, which is an error if it ``must``."""
        try:
            self.open()
            self._append(bytes(self._backlog) + entry)
            self._backlog.clear()
            if sync:
                self.sync()
        except (OSError, RunUnwritable) as reason:
            cause = reason.__cause__ if isinstance(reason, RunUnwritable) else reason
            number = cause.errno if isinstance(cause, OSError) else None
            if must or number not in _PASSING or len(self._backlog) + len(entry) > BACKLOG_BYTES_MAX:
                words = os.strerror(number) if number else str(reason)
                raise RunUnwritable(file=str(self.path), reason=words) from reason
            if not self._backlog:
                _log.warning(
                    "%s: %s; what is to be written there is kept until there is room", self.path, reason
                )
            self._backlog += entry

    def _append(self, data: bytes) -> None:
        """All or nothing: a part that was written before room ran out is taken back."""
        assert self._file is not None, "it is open"
        before = os.fstat(self._file).st_size
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, before)
            raise

    def sync(self) -> None:
        """What was written is on the disk."""
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> None:
        """Everything that there is room for is on the disk."""
        if self._file is None:
            return
        try:
            if self._backlog:
                self._append(bytes(self._backlog))
                self._backlog.clear()
            os.fsync(self._file)
        except OSError as reason:
            _log.warning("%s: %s; %d bytes are lost", self.path, reason, len(self._backlog))
        finally:
            os.close(self._file)
            self._file = None


def sync_folder(folder: Path) -> None:
    """A new file's name is on the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
