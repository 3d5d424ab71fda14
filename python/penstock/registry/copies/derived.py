"""Derived copies: made once, content-addressed, and made again when somebody pruned them.

A copy follows from its original and from the libraries that write it, so making it again gives the same bytes; if it does
not, the error says whether the original or the libraries have changed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import _rust
from penstock._rust import digest_file
from penstock.errors import CorruptShard, FileUnusable
from penstock.formats import format_named
from penstock.formats.contract import Policy, RawFile
from penstock.formats.shard_bytes import check_all, details_of, source_of
from penstock.registry.copies.row_copies import copy_names, forget_whole
from penstock.registry.manifest import Shard
from penstock.registry.scan.scan import object_name
from penstock.registry.scan.work_folder import work_folder
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
    for dataset in registry.listed_datasets():
        for version in registry.versions(dataset):
            for shard in version.manifest.shards:
                name = shard.derived.removeprefix("b3:") or shard.digest.removeprefix("b3:")
                users.setdefault(name, []).append(version.address)
                if shard.derived:
                    copies.add(name)
            for name in copy_names(registry.store, version.manifest.shards):
                users.setdefault(name, []).append(version.address)
                copies.add(name)
    entries = []
    for entry in registry.store.entries("derived"):
        name = entry.name.removeprefix("derived/")
        entries.append(Derived(name, entry.bytes, users.get(name, []), name in copies or name not in users))
    return entries


def prune_derived(registry: "Registry", names: set[str]) -> int:
    """Delete copies by name. Payloads are shards of versions, which nothing deletes."""
    versions = [version for dataset in registry.listed_datasets() for version in registry.versions(dataset)]
    freed = 0
    # Records first: whoever finds one expects the copy.
    for version in versions:
        records = copy_names(registry.store, version.manifest.shards)
        chosen = names & records.keys()
        for name in chosen:
            registry.store.delete(records[name])
        if chosen:
            forget_whole(version, registry.store)
    for entry in list_derived(registry):
        if entry.name in names and entry.copy:
            registry.store.delete(f"derived/{entry.name}")
            freed += entry.bytes
    return freed


def remake(raw: RawFile, index: Path | bytes, format_name: str, shard: Shard, registry: Store) -> None:
    """Scan the original again for its copy, and put the copy back."""
    # First whether the original is still what was registered: only then does another copy mean another library.
    for file, offset, reason in check_all(raw, index, shard.index):
        raise CorruptShard(shard=file, offset=offset, reason=reason)
    opened = _rust.ShardFile(source_of(raw), index, shard.index)
    policy = Policy(skip_bad=1 << 62, **details_of(opened).get("policy", {}))
    with work_folder(registry, "remake") as folder:
        scanned = format_named(format_name).scan(raw, policy, folder, lambda *_: None)
        if scanned.derived is None or digest_file(scanned.derived) != shard.derived:
            hint = "register the files again with this release: the version gets the copy that it makes"
            reason = (
                "its copy was pruned, and this release of the libraries makes another one from the same bytes"
            )
            raise FileUnusable(path=raw.url, reason=reason, hint=hint)
        registry.put_file_if_absent(object_name(shard.derived, "derived"), scanned.derived)
