"""The cache of the host: which one this process uses, and what people do to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Self, final

from penstock._rust.store import StoreClient

@final
class HostCache:
    """A directory of verified pieces of far objects, shared by all processes of the host. Raises ``OSError`` if it cannot be one."""

    def __new__(
        cls,
        root: Path,
        *,
        limit: str,
        reserve_bytes: int,
        explicit: bool,
        patience_s: float,
        pause_s: float,
    ) -> Self: ...
    @property
    def root(self) -> Path:
        """The directory."""
    @property
    def limit_bytes(self) -> int:
        """Bytes that it may hold."""
    def show(self) -> tuple[int, int, int]:
        """Bytes, pieces and objects that are there; all files are looked at."""
    def ledger(self) -> list[tuple[str, int]]:
        """What all processes of the host have counted."""
    def verify(self, progress: Callable[[int], object]) -> tuple[int, int, list[Path]]:
        """Read everything and drop what is rotten: files and bytes that were read, and the files that were dropped."""
    def trim(self, bytes: int) -> int | None:  # noqa: A002 - what it is
        """Remove what was not used for longest until so many bytes are left; the bytes that went, None if another process is at it."""
    def clear(self) -> int:
        """Remove everything; the bytes that went."""

def use_cache(cache: HostCache | None) -> None:
    """Files opened from now on use this cache, or none."""

def disk_room(place: Path) -> tuple[int, int] | None:
    """Bytes of the disk that holds a directory, and how many are free."""

def parse_size(text: str, place: Path) -> int | None:
    """A size as people write it, in bytes on the disk of a directory; None if it is none."""

def read_object(client: StoreClient, name: str, digest: str) -> bytes:
    """A small object named by its content, through the cache of the host."""
