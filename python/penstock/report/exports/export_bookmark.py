"""What of a run is in a target already. Kept beside the target, so that an export that was killed goes on where it was, and nothing is there twice.

A bookmark is replaced as a whole after what it speaks of is on the disk. What a killed export wrote behind its last bookmark is cut off by the next one.
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import ExportTargetTaken, ExportUnwritable
from penstock.observe.steps import UNMEASURED

FORM = 1


class ExportBookmark(msgspec.Struct):
    """Of one run in one target."""

    form: int
    #: Which run: its directory.
    run: str
    #: Which form: ``tensorboard``, ``parquet``, ``perfetto`` or ``otlp``.
    kind: str
    #: By ``LIFE-RANK``: when the newest row that is in the target began.
    rows: dict[str, int] = {}
    #: Entries of the journal that are in it, by ``LIFE-RANK``, and lives whose death is.
    entries: dict[str, int] = {}
    deaths: list[str] = []
    #: By boot: nanoseconds from its clock to the wall clock, as they were first seen.
    clocks: dict[str, int] = {}
    #: Bytes of the target's file.
    length: int = 0
    #: What the form needs beyond that.
    more: dict[str, Any] = {}

    def row(self, life: int, rank: int) -> int:
        """When the newest exported row of a rank of a life began; ``UNMEASURED`` when there is none."""
        return self.rows.get(key_of(life, rank), UNMEASURED)


def key_of(life: int, rank: int) -> str:
    """How bookmarks call a rank of a life."""
    return f"{life}-{rank}"


class TargetLock:
    """Held by the only export that writes to a folder or a file, until ``release`` or the end of the process."""

    def __init__(self, path: Path, *, is_folder: bool) -> None:
        try:
            (path if is_folder else path.parent).mkdir(parents=True, exist_ok=True)
            flags = os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT
            self._handle = os.open(path, flags | os.O_CLOEXEC, 0o644)
        except OSError as reason:
            raise ExportUnwritable(target=str(path), reason=reason.strerror or str(reason)) from reason
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._handle)
            raise ExportTargetTaken(target=str(path), reason="another export is writing to it") from None

    def release(self) -> None:
        """Let others write."""
        os.close(self._handle)

    def or_release(self, opened: Callable[[], ExportBookmark]) -> ExportBookmark:
        """What is opened under the lock; a target that is not ours is left as it was."""
        try:
            return opened()
        except BaseException:
            self.release()
            raise


def read_bookmark(path: Path, run: Path, kind: str) -> ExportBookmark | None:
    """The bookmark, if the same run was exported here before; None when there is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as reason:
        raise ExportUnwritable(target=str(path), reason=reason.strerror or str(reason)) from reason
    return bookmark_of(data, str(path), run, kind)


def write_bookmark(path: Path, bookmark: ExportBookmark) -> None:
    """Replace it."""
    write_whole(path, msgspec.json.encode(bookmark))


def bookmark_of(data: bytes, place: str, run: Path, kind: str) -> ExportBookmark:
    """A bookmark that was written for this run and this form; anything else is not ours to write to."""
    try:
        bookmark = msgspec.json.decode(data, type=ExportBookmark)
    except msgspec.MsgspecError as reason:
        raise ExportTargetTaken(target=place, reason=f"its bookmark cannot be read: {reason}") from reason
    if bookmark.form != FORM or bookmark.kind != kind:
        raise ExportTargetTaken(
            target=place, reason=f"it was written as {bookmark.kind}, form {bookmark.form}"
        )
    if bookmark.run != str(run.resolve()):
        raise ExportTargetTaken(target=place, reason=f"it holds another run, {bookmark.run}")
    return bookmark


def new_bookmark(run: Path, kind: str) -> ExportBookmark:
    """Of a target that holds nothing yet."""
    return ExportBookmark(form=FORM, run=str(run.resolve()), kind=kind)


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file at once: readers see the old one or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as reason:
        beside.unlink(missing_ok=True)
        raise ExportUnwritable(target=str(path), reason=reason.strerror or str(reason)) from reason
