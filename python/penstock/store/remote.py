"""Object stores (S3 and compatible, Google, Azure, HTTP) and one in memory for tests, through the client in Rust.

Credentials, region and endpoint come from the usual environment of each provider (``AWS_ENDPOINT_URL``, …), for S3 also from the
profiles of ``~/.aws``. Deadlines, retries and limits are those of ``penstock.store.Limits``.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock._rust import StoreClient
from penstock.store.contract import Entry
from penstock.store.limits import Limits


class RemoteStore:
    """A root in an object store, through the client in Rust. Nothing is contacted until it is used."""

    def __init__(
        self, url: str, *, options: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> None:
        self.url = url
        self._options = dict(options or {})
        self._limits = limits
        chosen = limits if limits is not None else Limits.from_environment()
        #: For readers that go past Python.
        self.client = StoreClient(url, self._options, chosen.as_dict())

    def __reduce__(self) -> tuple[object, ...]:
        # A client does not travel to other processes; what it is made from does.
        return _again, (self.url, self._options, self._limits)

    def get(self, name: str) -> bytes:
        """All bytes of an object."""
        return self.client.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``."""
        return self.client.get_range(name, start, length)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Make an object unless it exists."""
        return self.client.put_if_absent(name, data)

    def put_file_if_absent(self, name: str, file: Path) -> bool:
        """Make an object from a file. Large ones cannot be made on condition, so only for content-addressed names."""
        return self.client.put_file_if_absent(name, file)

    def put_buffers(self, name: str, buffers: Sequence[memoryview]) -> int:
        """Make a large object, part by part."""
        return self.client.put_buffers(name, list(buffers))

    def replace(self, name: str, data: bytes) -> None:
        """Put other bytes in an object's place; object stores do that at once."""
        self.client.put_buffers(name, [memoryview(data)])

    def describe(self, name: str) -> Entry:
        """Size and stamp of an object."""
        _, size_bytes, stamp, _ = self.client.describe(name)
        return Entry(name=name, bytes=size_bytes, stamp=stamp)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Every object below a prefix, sorted by name."""
        for name, size_bytes, stamp, tag in self.client.entries(prefix):
            yield Entry(name=name, bytes=size_bytes, stamp=_as_in_headers(tag) or stamp)

    def entries_beginning(self, text: str) -> tuple[list[Entry], list[str]]:
        """Every object whose name begins with a text, which may end within a part; and names that no request can name."""
        objects, unreadable = self.client.entries_beginning(text)
        entries = [
            Entry(name=name, bytes=size, stamp=_as_in_headers(tag) or stamp)
            for name, size, stamp, tag in objects
        ]
        return entries, unreadable

    def delete(self, name: str) -> None:
        """Remove an object."""
        self.client.delete(name)

    def local_path(self, name: str) -> Path | None:
        """Nothing of it is on this machine."""
        return None


def _as_in_headers(tag: str | None) -> str | None:
    """An entity tag of a listing as an answer has it, so that both can be compared: Azure lists tags without their quotes."""
    return f'"{tag}"' if tag and not tag.endswith('"') else tag


def _again(url: str, options: dict[str, str], limits: Limits | None) -> RemoteStore:
    return RemoteStore(url, options=options, limits=limits)
