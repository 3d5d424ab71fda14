"""Object stores (S3 and compatible, Google, Azure, HTTP) and an in-memory one for tests, through obstore.

Credentials, region and endpoint come from the usual environment of each provider (``AWS_ENDPOINT_URL``, …). Retries and
deadlines are obstore's, with the limits below.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import MemoryStore, from_url

from penstock.errors import ObjectMissing, StoreDenied, StoreError, StoreFailed
from penstock.store.contract import Entry

_CLIENT: Any = {
    "connect_timeout": timedelta(seconds=10),
    "timeout": timedelta(seconds=120),
    "allow_http": True,
}
#: Of a large object that is uploaded part by part.
_PIECE_BYTES = 8 << 20
_RETRY: Any = {
    "max_retries": 6,
    "retry_timeout": timedelta(seconds=120),
    "backoff": {"base": 2, "init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10)},
}


class RemoteStore:
    """See the module's description. Nothing is contacted until it is used."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._prefix = parts.path.strip("/")
        self._store = _connect(f"{parts.scheme}://{parts.netloc}")

    def __reduce__(self) -> tuple[type["RemoteStore"], tuple[str]]:
        # A client does not travel to other processes; its URL does.
        return RemoteStore, (self.url,)

    def get(self, name: str) -> bytes:
        """All bytes of an object."""
        try:
            return bytes(obstore.get(self._store, self._key(name)).bytes())
        except (BaseError, OSError) as reason:
            raise self._failure("read", name, reason) from reason

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``."""
        if length == 0:
            return b""
        try:
            data = bytes(obstore.get_range(self._store, self._key(name), start=start, length=length))
        except (BaseError, OSError) as reason:
            raise self._failure("read", name, reason) from reason
        if len(data) != length:
            raise StoreFailed(
                verb="read", url=self._url(name), reason=f"it ends before byte {start + length}"
            )
        return data

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Make an object unless it exists."""
        try:
            obstore.put(self._store, self._key(name), data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except (BaseError, OSError) as reason:
            raise self._failure("write", name, reason) from reason
        return True

    def put_file_if_absent(self, name: str, file: Path) -> bool:
        """Make an object from a file. Multipart uploads cannot be conditional, so only for content-addressed names."""
        try:
            self.describe(name)
        except ObjectMissing:
            pass
        else:
            return False
        try:
            obstore.put(self._store, self._key(name), file)
        except (BaseError, OSError) as reason:
            raise self._failure("write", name, reason) from reason
        return True

    def put_buffers(self, name: str, buffers: Sequence[memoryview]) -> int:
        """Make a large object, part by part."""
        pieces = (
            bytes(buffer[at : at + _PIECE_BYTES])
            for buffer in buffers
            for at in range(0, len(buffer), _PIECE_BYTES)
        )
        try:
            obstore.put(self._store, self._key(name), pieces, chunk_size=_PIECE_BYTES, max_concurrency=8)
        except (BaseError, OSError) as reason:
            raise self._failure("write", name, reason) from reason
        return sum(map(len, buffers))

    def describe(self, name: str) -> Entry:
        """Size and stamp of an object."""
        try:
            found = obstore.head(self._store, self._key(name))
        except (BaseError, OSError) as reason:
            raise self._failure("read", name, reason) from reason
        return Entry(name=name, bytes=found["size"], stamp=str(found["e_tag"] or found["last_modified"]))

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Every object below a prefix, sorted by name."""
        top = self._key(prefix) if prefix else self._prefix
        try:
            found = [entry for page in obstore.list(self._store, top or None) for entry in page]
        except (BaseError, OSError) as reason:
            raise self._failure("list", prefix, reason) from reason
        skip = len(self._prefix) + 1 if self._prefix else 0
        for entry in sorted(found, key=lambda entry: entry["path"]):
            stamp = str(entry["e_tag"] or entry["last_modified"])
            yield Entry(name=entry["path"][skip:], bytes=entry["size"], stamp=stamp)

    def delete(self, name: str) -> None:
        """Remove an object."""
        try:
            obstore.delete(self._store, self._key(name))
        except (NotFoundError, FileNotFoundError):
            return
        except (BaseError, OSError) as reason:
            raise self._failure("delete", name, reason) from reason

    def local_path(self, name: str) -> Path | None:
        """Nothing of it is on this machine."""
        return None

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _url(self, name: str) -> str:
        return f"{self.url}/{name}"

    def _failure(self, verb: str, name: str, reason: Exception) -> StoreError:
        if isinstance(reason, FileNotFoundError | NotFoundError):
            return ObjectMissing(url=self._url(name))
        # obstore's messages go on with a dump of Rust structures after an empty line.
        words = str(reason).partition("\n\n")[0]
        if isinstance(reason, PermissionError | PermissionDeniedError | UnauthenticatedError):
            return StoreDenied(verb=verb, url=self._url(name), reason=words)
        return StoreFailed(verb=verb, url=self._url(name), reason=words)


@cache
def _connect(bucket_url: str) -> Any:
    """One client per bucket and process; an in-memory store lives as long as the process."""
    if bucket_url.startswith("memory://"):
        return MemoryStore()
    return from_url(bucket_url, client_options=_CLIENT, retry_config=_RETRY)
