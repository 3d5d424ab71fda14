"""A store that may only be read, with a scratch store for what is made from it.

Reading asks the scratch first and then the place; writing goes to the scratch. It fits names that say what an object holds
(digests, and keys of everything that it follows from): the same name means the same content in both. A place that may turn out
to be read-only is written to until it refuses for the first time; from then on it is sealed.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import Any, TypeVar

from penstock import events
from penstock.errors import ObjectMissing, StoreDenied
from penstock.store.contract import Entry, Store
from penstock.store.location import is_web

_LOG = logging.getLogger("penstock.store")
_Answer = TypeVar("_Answer")


class LayeredStore:
    """Reads a place that may not be written, and writes to a scratch store."""

    def __init__(self, place: Store, scratch: Store, *, sealed: bool) -> None:
        self.place = place
        self.scratch = scratch
        self.url = place.url
        #: Whether the place is never written to.
        self.sealed = sealed

    @property
    def client(self) -> Any:
        """The client of the place, for readers that go past Python; what the scratch has, they find as files."""
        return getattr(self.place, "client", None)

    def below(self, folder: str, open_store: Callable[[str], Store]) -> "LayeredStore":
        """The same for a folder of both."""
        place, scratch = (open_store(f"{store.url}/{folder}") for store in (self.place, self.scratch))
        return LayeredStore(place, scratch, sealed=self.sealed)

    def seal(self, reason: StoreDenied) -> None:
        """Write to the scratch from now on."""
        if not self.sealed:
            self.sealed = True
            events.record("registry.sealed", place=self.url, scratch=self.scratch.url)
            _LOG.warning("%s: what is derived from it is kept in %s", reason, self.scratch.url)

    def get(self, name: str) -> bytes:
        """All bytes of an object."""
        return self._read(lambda store: store.get(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``."""
        return self._read(lambda store: store.get_range(name, start, length))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Make an object unless it exists."""
        return self.write(lambda store: store.put_if_absent(name, data))

    def put_file_if_absent(self, name: str, file: Path) -> bool:
        """Make an object from a file."""
        return self.write(lambda store: store.put_file_if_absent(name, file))

    def put_buffers(self, name: str, buffers: Sequence[memoryview]) -> int:
        """Make a large object of pieces of memory."""
        return self.write(lambda store: store.put_buffers(name, buffers))

    def replace(self, name: str, data: bytes) -> None:
        """Put other bytes in an object's place."""
        self.write(lambda store: store.replace(name, data))

    def describe(self, name: str) -> Entry:
        """Size and stamp of an object."""
        return self._read(lambda store: store.describe(name))

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Every object below a prefix, sorted by name; what both have, as the scratch has it.

        Of a place on a web server, what the scratch has: the rest is found by name and not listed.
        """
        if is_web(self.place.url):
            yield from self.scratch.entries(prefix)
            return
        both = merge(self.scratch.entries(prefix), self.place.entries(prefix), key=lambda entry: entry.name)
        last = None
        for entry in both:
            if entry.name != last:
                yield entry
            last = entry.name

    def delete(self, name: str) -> None:
        """Remove an object; one that only a sealed place has stays."""
        if not self.sealed:
            self.place.delete(name)
        else:
            try:
                self.scratch.describe(name)
            except ObjectMissing:
                url = f"{self.url}/{name}"
                raise StoreDenied(verb="delete", url=url, reason="the registry is only read") from None
        self.scratch.delete(name)

    def local_path(self, name: str) -> Path | None:
        """The file that holds an object. A whole folder is asked for to write into it."""
        path = self.scratch.local_path(name)
        if path is not None and path.exists():
            return path
        if "/" not in name and self.sealed:
            return path
        return self.place.local_path(name)

    def _read(self, ask: Callable[[Store], _Answer]) -> _Answer:
        try:
            return ask(self.scratch)
        except ObjectMissing:
            return ask(self.place)

    def write(self, act: Callable[[Store], _Answer]) -> _Answer:
        """Write to the place, or to the scratch once the place has refused."""
        if not self.sealed:
            try:
                return act(self.place)
            except StoreDenied as reason:
                self.seal(reason)
        return act(self.scratch)
