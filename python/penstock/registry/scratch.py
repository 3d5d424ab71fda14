"""The scratch of a registry that one may only read: where what is derived from it is kept.

Derived data is named by what it follows from, so a scratch needs no names of its own and is found again by whoever opens the same
place. Numbers of versions are the place's; a derived version that is in the scratch is addressed by its digest.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock._rust import digest
from penstock.errors import RegistryReadOnly, StoreDenied, UsageError
from penstock.registry.version_entry import VersionEntry
from penstock.store import LayeredStore, Store, is_remote, open_store, to_url
from penstock.store.home import penstock_home
from penstock.store.local import LocalStore
from penstock.store.location import is_web

_DIGITS = 16
#: Folders that derived data is written to. Where everybody may make folders, those that are there may belong to another.
_DERIVED = ("columns", "copies", "datasets", "derived", "eras", "objects", "plans", "work")


@dataclass(frozen=True, slots=True)
class Held:
    """The record of a version, and the store that has it."""

    record: VersionEntry
    home: Store


def with_scratch(place: Store, scratch: str | os.PathLike[str] | None) -> Store:
    """A place with the scratch that was asked for, or that it needs."""
    if scratch is not None:
        url = to_url(scratch)
        if is_remote(url):
            raise UsageError(f"the scratch must be a directory of this machine, got {url!r}")
        if url == place.url:
            raise UsageError(f"the scratch must not be the registry itself, got {url!r}")
        return LayeredStore(place, open_store(url), sealed=True)
    if isinstance(place, LocalStore):
        # One that does not exist yet is made when it is first written to, or says then why it cannot be.
        # So does one that may not even be looked at.
        sealed = os.path.isdir(place.root) and not place.is_writable(*_DERIVED)
        return LayeredStore(place, _default_scratch(place), sealed=True) if sealed else place
    if place.url.startswith("memory://"):
        return place
    return LayeredStore(place, _default_scratch(place), sealed=is_web(place.url))


@contextmanager
def writing(store: Store, verb: str) -> Iterator[None]:
    """Something that changes the place itself, which a scratch cannot stand in for."""
    if not isinstance(store, LayeredStore):
        yield
        return
    scratch = store.scratch.url
    if store.sealed:
        reason = "it is only read"
        raise RegistryReadOnly(place=store.url, verb=verb, scratch=scratch, reason=reason)
    try:
        yield
    except StoreDenied as reason:
        if not reason.url.startswith(store.url):
            raise
        raise RegistryReadOnly(place=store.url, verb=verb, scratch=scratch, reason=reason.reason) from reason


def _default_scratch(place: Store) -> Store:
    name = digest(place.url.encode()).removeprefix("b3:")[:_DIGITS]
    return open_store(to_url(penstock_home() / "scratch" / name))
