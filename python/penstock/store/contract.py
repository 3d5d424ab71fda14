"""What a store promises."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """One object as a listing shows it."""

    #: Name below the store's root, with ``/`` between parts.
    name: str
    bytes: int
    #: Changes whenever the object does: an etag, or inode, size and times of a file.
    stamp: str


class Store(Protocol):
    """Named byte strings below a root. Safe to use from any thread and any number of processes."""

    #: Where the root is.
    url: str

    def get(self, name: str) -> bytes:
        """All bytes of an object. Raises ``ObjectMissing``."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``. Raises ``ObjectMissing``, or ``StoreFailed`` when there are fewer."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Make an object, durably, unless it exists; whether it was made by this call."""

    def put_file_if_absent(self, name: str, file: Path) -> bool:
        """The same with the content of a local file, which may be large. The file may be moved away by this."""

    def put_buffers(self, name: str, buffers: Sequence[memoryview]) -> int:
        """Make a large object of pieces of memory, durably; its length. For names that only one writer uses: what an earlier try
        of the same writer left is replaced.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Put other bytes in an object's place, durably and at once: its name is taken all the while. For repairs alone."""

    def describe(self, name: str) -> Entry:
        """Size and stamp of an object. Raises ``ObjectMissing``."""

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Every object whose name begins with ``prefix`` (a whole part, as in ``datasets/web``), sorted by name."""

    def delete(self, name: str) -> None:
        """Remove an object; it is no error if it is gone already."""

    def local_path(self, name: str) -> Path | None:
        """The file that holds an object, where there is one on this machine."""
