"""Read once on a host: what several ranks of a machine need from a far store is fetched by one of them and shared through a file.

Blocks of a far file are claimed one by one by creating a file that only one can create; who claimed a block fetches it into a sparse
file beside, the others wait for it. A claim whose owner died is passed over after a while, since whoever waits may fetch the block too: both
write the same bytes, and every chunk is checked when it is used. The last rank that leaves removes everything.
"""

import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from penstock._rust import digest
from penstock.errors import StoreFailed
from penstock.state.manifest import DataFile
from penstock.state.ranks.clock import Clock, Wait
from penstock.store import Store

BLOCK_BYTES = 32 << 20
#: How long a block that another rank claimed is waited for before it is fetched here too.
PATIENCE_S = 30.0
#: How often a spool may be removed by others just when this rank comes.
_ENTRIES_MAX = 1000


class Spool:
    """The shared files of one checkpoint on this host, made when something is first fetched. Use it as a context."""

    def __init__(self, name: str, folder: Path | None = None) -> None:
        place = folder or Path(tempfile.gettempdir())
        self._place = place / f"penstock-spool-{os.getuid()}-{digest(name.encode())[3:19]}"
        self._lock = -1

    def __enter__(self) -> "Spool":
        return self

    def _enter(self) -> None:
        """Hold the folder's lock together with the others. Until it is held, the last of them may remove folder and lock."""
        path = self._place.with_suffix(".lock")
        for _ in range(_ENTRIES_MAX):
            lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_at(lock, path):
                self._lock = lock
                # Nobody removes it now.
                self._place.mkdir(mode=0o700, exist_ok=True)
                return
            os.close(lock)
        raise StoreFailed(verb="share", url=str(self._place), reason="it is removed again and again")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lock < 0:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self._place, ignore_errors=True)
            self._place.with_suffix(".lock").unlink(missing_ok=True)
        except BlockingIOError:
            # Somebody else still reads; the last one removes it.
            pass
        finally:
            os.close(self._lock)
            self._lock = -1

    def fetch(self, store: Store, file: DataFile, name: str, wanted: Iterable[tuple[int, int]]) -> Path:
        """A local file that has the wanted ranges (first byte, bytes) of a far one, at the same places."""
        if self._lock < 0:
            self._enter()
        path = self._place / digest(f"{store.url}/{name}".encode())[3:35]
        if not path.exists():
            self._make(path, file.bytes)
        blocks = sorted({block for first, length in wanted for block in _blocks(first, length)})
        # First what nobody else fetches, so that ranks divide the work; then wait for the rest.
        theirs = [block for block in blocks if not self._fetch_if_free(path, store, file, name, block)]
        wait = Wait(PATIENCE_S, Clock())
        for block in theirs:
            while not _done(path, block).exists():
                if not wait.again():
                    self._fetch(path, store, file, name, block)
                    wait = Wait(PATIENCE_S, Clock())
        return path

    def _make(self, path: Path, bytes_: int) -> None:
        temporary = path.with_suffix(f".{uuid.uuid4().hex}")
        with temporary.open("wb") as file:
            file.truncate(bytes_)
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()

    def _fetch_if_free(self, path: Path, store: Store, file: DataFile, name: str, block: int) -> bool:
        """Fetch a block unless somebody has or does; whether it is there."""
        if _done(path, block).exists():
            return True
        try:
            os.close(
                os.open(path.with_suffix(f".{block}.claim"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            )
        except FileExistsError:
            return False
        self._fetch(path, store, file, name, block)
        return True

    def _fetch(self, path: Path, store: Store, file: DataFile, name: str, block: int) -> None:
        first = block * BLOCK_BYTES
        data = store.get_range(name, first, min(BLOCK_BYTES, file.bytes - first))
        with path.open("r+b") as whole:
            whole.seek(first)
            whole.write(data)
        _done(path, block).touch()


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one that a path names."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _done(path: Path, block: int) -> Path:
    return path.with_suffix(f".{block}.done")


def _blocks(first: int, length: int) -> range:
    return range(first // BLOCK_BYTES, -(-(first + length) // BLOCK_BYTES))
