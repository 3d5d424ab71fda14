"""Object stores: one client with deadlines, retries and limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias, final

from typing_extensions import Buffer

#: Name below the root, length in bytes, stamp, and the entity tag where the store has them.
EntryValues: TypeAlias = tuple[str, int, str, str | None]

@final
class StoreClient:
    """The client of a root in a store: s3, gs, az, http, https or memory. Every call keeps to the limits and fails with a store's error.

    ``options`` are settings of the provider by the names of its environment variables in lower case; ``limits`` those of
    ``penstock.store.Limits``. Clients that are made alike share connections, budget and limits.
    """

    def __new__(cls, url: str, options: dict[str, str], limits: dict[str, Any]) -> Self: ...
    @property
    def url(self) -> str:
        """Where the root is."""
    def get(self, name: str) -> bytes:
        """All bytes of an object."""
    def get_range(self, name: str, start: int, length: int, etag: str | None = None) -> bytes:
        """Exactly ``length`` bytes from ``start``, in parts that come at the same time; with a tag, only of that object."""
    def read_into(self, name: str, start: int, into: Buffer, etag: str | None = None) -> None:
        """The same into memory of the caller, which has to be writable and is filled whole."""
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Make an object unless it exists; whether this call made it."""
    def put_file_if_absent(self, name: str, path: Path) -> bool:
        """The same with the content of a file."""
    def put_buffers(self, name: str, buffers: Sequence[Buffer]) -> int:
        """Make or replace an object; its length."""
    def describe(self, name: str) -> EntryValues:
        """What the store says about an object."""
    def entries(self, prefix: str) -> list[EntryValues]:
        """All objects below a prefix, sorted by name."""
    def entries_beginning(self, text: str) -> tuple[list[EntryValues], list[str]]:
        """All objects whose names begin with a text, sorted by name, and names that no request can name."""
    def delete(self, name: str) -> None:
        """Remove an object; it is no error if it is gone."""

def store_counts() -> dict[str, Any]:
    """What this process has asked of stores: counts, and of every duration how many (``_times``), p50 and p99 in seconds."""

def store_flying() -> list[tuple[str, str, tuple[int, int] | None, str, float]]:
    """Requests that are under way, the oldest first: verb, URL, range, stage and age in seconds."""
