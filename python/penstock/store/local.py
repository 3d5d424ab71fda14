"""A directory as a store.

Put-if-absent writes and syncs a temporary file beside the target and then makes a hard link with the final name, which
the kernel does for exactly one of any number of contenders; the directory is synced after that. A killed writer leaves
at most a ``.tmp-`` file, which nobody sees and which ``sweep`` removes.
"""

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock._rust import write_buffers
from penstock.errors import ObjectMissing, StoreDenied, StoreFailed
from penstock.events.points import reach
from penstock.store.contract import Entry
from penstock.store.location import to_url

_TEMPORARY = ".tmp-"
_STALE_S = 24 * 3600
#: Of one large object; it is written beside whatever else the machine does.
_WRITERS = max(2, min(8, (os.cpu_count() or 1) // 2))


class LocalStore:
    """A directory as a store. Directories are made when first written to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = to_url(root)

    def get(self, name: str) -> bytes:
        """All bytes of an object."""
        try:
            return self._path(name).read_bytes()
        except OSError as reason:
            raise self._failure("read", name, reason) from reason

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``."""
        try:
            with self._path(name).open("rb") as file:
                file.seek(start)
                data = file.read(length)
        except OSError as reason:
            raise self._failure("read", name, reason) from reason
        if len(data) != length:
            raise StoreFailed(
                verb="read", url=self._url(name), reason=f"it ends before byte {start + length}"
            )
        return data

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Make an object unless it exists."""
        try:
            temporary = self._temporary(name)
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            return self._publish(temporary, self._path(name))
        except OSError as reason:
            raise self._failure("write", name, reason) from reason

    def replace(self, name: str, data: bytes) -> None:
        """Put other bytes in an object's place; whoever looks finds one of the two."""
        path = self._path(name)
        try:
            temporary = self._temporary(name)
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_directory(path.parent)
        except OSError as reason:
            raise self._failure("write", name, reason) from reason

    def put_file_if_absent(self, name: str, file: Path) -> bool:
        """Make an object from a file; a file of the same file system is linked, not copied."""
        try:
            temporary = self._temporary(name)
            try:
                os.link(file, temporary)
            except OSError:
                shutil.copyfile(file, temporary)
            with temporary.open("rb") as opened:
                os.fsync(opened.fileno())
            return self._publish(temporary, self._path(name))
        except OSError as reason:
            raise self._failure("write", name, reason) from reason

    def put_buffers(self, name: str, buffers: Sequence[memoryview]) -> int:
        """Make a large object, past the page cache where the file system can."""
        path = self._path(name)
        try:
            self._make_folder(name)
            path.unlink(missing_ok=True)
            reach("store.write")
            length = write_buffers(path, list(buffers), True, _WRITERS)
            _sync_directory(path.parent)
        except OSError as reason:
            raise self._failure("write", name, reason) from reason
        return length

    def describe(self, name: str) -> Entry:
        """Size and stamp of an object."""
        try:
            return _entry(name, self._path(name))
        except OSError as reason:
            raise self._failure("read", name, reason) from reason

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Every object below a prefix, sorted by name."""
        top = self._path(prefix) if prefix else self.root
        try:
            if top.is_file():
                yield _entry(prefix, top)
                return
        except OSError as reason:
            raise self._failure("list", prefix, reason) from reason

        def refuse(reason: OSError) -> None:
            # What cannot be listed is not empty: a run would begin anew beside its own checkpoints.
            if not isinstance(reason, FileNotFoundError | NotADirectoryError):
                raise self._failure("list", prefix, reason) from reason

        for folder, folders, files in os.walk(top, onerror=refuse):
            folders.sort()
            for file in sorted(files):
                if file.startswith(_TEMPORARY):
                    continue
                path = Path(folder) / file
                try:
                    entry = _entry(path.relative_to(self.root).as_posix(), path)
                except FileNotFoundError:
                    # Deleted since the folder was read.
                    continue
                yield entry

    def delete(self, name: str) -> None:
        """Remove an object."""
        try:
            self._path(name).unlink(missing_ok=True)
        except OSError as reason:
            raise self._failure("delete", name, reason) from reason

    def local_path(self, name: str) -> Path | None:
        """The object's own file."""
        return self._path(name)

    def is_writable(self, *folders: str) -> bool:
        """Whether this process may make objects here and in these folders, as far as permissions and the mount say.

        Nothing is written. A folder that does not exist counts as what is above it.
        """
        for place in (self.root, *(self.root / folder for folder in folders)):
            above = next((folder for folder in (place, *place.parents) if folder.exists()), place)
            if not os.access(above, os.W_OK | os.X_OK):
                return False
        return True

    def sweep(self, prefix: str) -> int:
        """Remove what killed writers left more than a day ago; how many files that were."""
        oldest = time.time() - _STALE_S
        stale = [path for path in self._path(prefix).rglob(f"{_TEMPORARY}*") if path.stat().st_mtime < oldest]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)

    def _publish(self, temporary: Path, target: Path) -> bool:
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        _sync_directory(target.parent)
        return True

    def _temporary(self, name: str) -> Path:
        return self._make_folder(name) / f"{_TEMPORARY}{uuid.uuid4().hex}"

    def _make_folder(self, name: str) -> Path:
        folder = self._path(name).parent
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            # A name that survives a power failure needs every directory on its way to do so too.
            for parent in [folder, *folder.parents][: len(Path(name).parts)]:
                _sync_directory(parent)
        return folder

    def _path(self, name: str) -> Path:
        path = self.root / name
        assert ".." not in Path(name).parts, f"a name may not climb out of its store: {name}"
        return path

    def _url(self, name: str) -> str:
        return f"{self.root / name}"

    def _failure(self, verb: str, name: str, reason: OSError) -> ObjectMissing | StoreDenied | StoreFailed:
        if verb != "write" and isinstance(reason, FileNotFoundError | NotADirectoryError):
            return ObjectMissing(url=self._url(name))
        if isinstance(reason, PermissionError) or reason.errno == errno.EROFS:
            return StoreDenied(verb=verb, url=self._url(name), reason=reason.strerror or str(reason))
        full = reason.errno in (errno.ENOSPC, errno.EDQUOT)
        return StoreFailed(verb=verb, url=self._url(name), reason=reason.strerror or str(reason), full=full)


def _entry(name: str, path: Path) -> Entry:
    status = path.stat()
    return Entry(name=name, bytes=status.st_size, stamp=stamp_of(status))


def stamp_of(status: os.stat_result) -> str:
    """What changes whenever a file does. The kernel sets the change time at every write, and no program can set it back."""
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
