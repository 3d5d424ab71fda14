"""Derived copies: made once, content-addressed, and made again when somebody pruned them.

A copy follows from its original alone, so making it again gives the same bytes; if it does not, the original is not what
was registered, and that is what the error says.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock._rust import digest_file
from penstock.errors import CorruptShard
from penstock.formats import format_named
from penstock.formats.contract import Policy, RawFile
from penstock.registry.manifest import Shard
from penstock.registry.scanning import object_name
from penstock.store import Store

if TYPE_CHECKING:
    from penstock.registry.registry import Registry


@dataclass(frozen=True, slots=True)
class Derived:
    """One file of derived data."""

    name: str
    bytes: int
    #: The versions that use it, as addresses; empty when none does.
    used_by: list[str]
    #: Whether it can be made again from an original: a row-addressable copy. Payloads are measured again instead.
    copy: bool


def list_derived(registry: "Registry") -> list[Derived]:
    """Every derived file and who uses it."""
    users: dict[str, list[str]] = {}
    copies = set()
    for dataset in registry.datasets():
        for version in registry.versions(dataset):
            for shard in version.manifest.shards:
                name = shard.derived.removeprefix("b3:") or shard.digest.removeprefix("b3:")
                users.setdefault(name, []).append(version.address)
                if shard.derived:
                    copies.add(name)
    found = []
    for entry in registry.store.entries("derived"):
        name = entry.name.removeprefix("derived/")
        found.append(Derived(name, entry.bytes, users.get(name, []), name in copies or name not in users))
    return found


def prune_derived(registry: "Registry", names: set[str]) -> int:
    """Delete copies by name. Payloads are shards of versions, which nothing deletes."""
    freed = 0
    for each in list_derived(registry):
        if each.name in names and each.copy:
            registry.store.delete(f"derived/{each.name}")
            freed += each.bytes
    return freed


def remake(raw: RawFile, format_name: str, shard: Shard, registry: Store) -> None:
    """Scan the original again for its copy, and put the copy back."""
    policy = Policy(skip_bad=1 << 62)
    with tempfile.TemporaryDirectory(prefix="penstock-remake-", dir=registry.local_path("work")) as folder:
        scanned = format_named(format_name).scan(raw, policy, Path(folder), lambda *_: None)
        if scanned.derived is None or digest_file(scanned.derived) != shard.derived:
            reason = "a copy made from it is not the copy that was made when it was registered"
            raise CorruptShard(shard=raw.url, offset=0, reason=reason)
        registry.put_file_if_absent(object_name(shard.derived, "derived"), scanned.derived)
