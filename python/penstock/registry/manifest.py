"""The manifest: shards, schema, counts and checksums of one version. It *is* the version.

A manifest holds nothing but what follows from the bytes that were registered: no times, no people, no places. So the
same bytes give the same manifest, and its digest names the version everywhere and for ever. Where the bytes are and
who registered them stands in the version's entry (see ``version_entry.py``).
"""

from typing import Any, Protocol

import msgspec

from penstock._rust import digest
from penstock.errors import ManifestDamaged

#: The newest form of manifests that this Penstock writes and reads.
FORM = 1


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field of a row."""

    name: str
    #: bool, int, float, decimal, string, bytes, time, list, object, array, null, or mixed.
    kind: str
    #: Whether rows may lack it or have null there.
    optional: bool = False


class Skipped(msgspec.Struct, frozen=True):
    """A bad row that was left out on request."""

    shard: str
    #: Its place in the shard, counted from 1 as editors do.
    line: int
    offset: int
    reason: str


class Companion(msgspec.Struct, frozen=True):
    """A file that a shard needed to be understood, such as the .idx beside a .bin."""

    name: str
    bytes: int
    digest: str


class Shard(msgspec.Struct, frozen=True, omit_defaults=True):
    """One immutable data file."""

    #: Its name below the version's root.
    name: str
    bytes: int
    digest: str
    rows: int
    #: Digest of its index, an object of the registry.
    index: str
    #: Digest of the row-addressable copy that is read instead, if rows cannot be reached cheaply in the file itself.
    derived: str = ""
    #: Digest of the copy's index.
    derived_index: str = ""
    companions: list[Companion] = []
    #: Fields that all of its rows have from its folders (``lang=en/``) or its split, and their values.
    partition: dict[str, int | str | None] = {}


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that one version consists of; its digest names the version."""

    form: int
    format: str
    rows: int
    bytes: int
    schema: list[Field]
    shards: list[Shard]
    skipped: list[Skipped] = []


def encode(manifest: Manifest) -> bytes:
    """The one way to write a manifest; equal manifests give equal bytes."""
    return msgspec.json.encode(manifest, order="deterministic")


def decode(data: bytes, *, name: str, upgrade: "Upgrade") -> Manifest:
    """Read a manifest of any form up to ours and check that it is the one its name says."""
    actual = digest(data)
    if actual != name:
        raise ManifestDamaged(name=name, reason=f"its digest is {actual}")
    try:
        return msgspec.convert(upgrade(msgspec.json.decode(data), name=name), Manifest)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as reason:
        raise ManifestDamaged(name=name, reason=str(reason)) from reason


class Upgrade(Protocol):
    """Brings a document of an older form into the current one; see ``migration.py``."""

    def __call__(self, document: dict[str, Any], *, name: str) -> dict[str, Any]: ...
