"""Whether a file is still what it was when its registration began.

A file that grows while it is read would become a version that no later read can find. So its size and times are looked at
again after the scan. A chmod, a hard link or a backup also changes the change time of a file; where nothing else did,
its bytes decide.
"""

from penstock._rust import digest_file
from penstock.errors import FileChanging, ObjectMissing, PenstockError
from penstock.formats.contract import RawFile, Scanned


def refuse_changed(
    raw: RawFile, problem: PenstockError | None = None, *, scanned: Scanned | None = None
) -> None:
    """Raise ``FileChanging`` if a file is another one than when it was found. ``scanned`` is what was found in it."""
    companions = scanned.companions if scanned is not None else []
    digest = scanned.digest if scanned is not None and not raw.members else None
    for file in (*(raw.members or (raw,)), *companions):
        # Objects of stores are whole from the start; asking again about each of thousands would cost as much as reading them.
        if raw.members and file.store.local_path(file.name) is None:
            continue
        reason = _change(file, digest if file is raw else None)
        if reason is not None:
            raise FileChanging(path=file.url, reason=reason) from problem


def _change(file: RawFile, digest: str | None) -> str | None:
    try:
        now = file.store.describe(file.name)
    except ObjectMissing:
        return "it is gone"
    # The stamp of a file that is read with a companion is followed by that of the companion.
    stamp = file.stamp.partition(" ")[0]
    if now.bytes != file.size_bytes:
        return f"it had {file.size_bytes:,} bytes when registration began, and has {now.bytes:,} now"
    if now.stamp == stamp:
        return None
    path = file.store.local_path(file.name)
    if path is not None and _without_change_time(now.stamp) == _without_change_time(stamp):
        return None if digest is None or digest_file(path) == digest else "its bytes changed"
    return "it was written while it was read"


def _without_change_time(stamp: str) -> str:
    return stamp.rpartition("-")[0]
