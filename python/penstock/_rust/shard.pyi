"""Reading: rows of one shard by number, bytes of one file by place, everything checked."""

from pathlib import Path
from typing import Self, TypeAlias, final

from typing_extensions import Buffer

from penstock._rust.source import SourceValues
from penstock._rust.store import StoreClient

#: An index: the file that holds it, its bytes, or an object of a store.
IndexValues: TypeAlias = Path | bytes | tuple[StoreClient, str]

@final
class ShardFile:
    """One shard, open for reading; every byte that leaves it has matched its registered checksum."""

    def __new__(cls, source: SourceValues, index: IndexValues, digest: str) -> Self: ...
    @property
    def rows(self) -> int:
        """How many rows it has."""
    @property
    def document(self) -> str:
        """What the index says about the shard beyond its rows, as JSON."""
    def key(self, row: int) -> str | None:
        """The key of a row, where rows have keys."""
    def span(self, row: int) -> tuple[int, int] | None:
        """First byte and length of a row."""
    def gather(self, rows: Buffer, threads: int) -> tuple[bytes, bytes]:
        """The bytes of the given rows (u64), one after another, and where each ends (u64)."""
    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the file itself."""

def find_damage(source: SourceValues, index: IndexValues, digest: str) -> list[tuple[int, int, str]]:
    """Every stretch of a file that is not as its index says: first byte, length, in which way."""

def look_again() -> None:
    """Let the next read of every file look first whether it has changed: bytes were read that make no sense."""

def read_for_step(step: int | None) -> None:
    """Say which step of a feed this thread reads for from now on, so that damage names the steps that a shard was read for."""

def archive_members(shard: str, row: bytes) -> list[tuple[str, int, int]]:
    """The members of one sample of an archive: extension, first byte, end."""
