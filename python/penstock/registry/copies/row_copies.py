"""Row copies of a version's shards: made when a feed first reads them in random order, found again by every other.

They are no part of the version: its manifest and its digest are what they were without them. A copy is derived data under its
digest; ``copies/<key>.json`` says which copy belongs to a shard, and is put last, so that what stands there is whole. A second
one says it of a whole version, so that opening it takes one request instead of one per shard. Several processes may copy at
once: each begins with another shard and leaves out what the others have finished.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from penstock import events
from penstock._rust import digest
from penstock.errors import DerivedTooLarge, ObjectMissing
from penstock.formats.columnar.row_copy import UNIT_FORMATS, Units, measure_units, write_row_copy
from penstock.registry.manifest import Shard
from penstock.registry.scan.scan import object_name, put_object
from penstock.registry.scan.work_folder import work_folder
from penstock.store import Store

if TYPE_CHECKING:
    from penstock.registry.version import Version

#: Part of the key of copies: raise it when copies are written in another way.
COPIER = 1
#: Shards that are looked into to learn how large the units of a version are.
_LOOKED_INTO_MAX = 8
#: A copy is hardly larger than its rows decoded.
_OVERHEAD = 1.05
_DISK_RESERVE = 0.02
_WORKERS_MAX = 4
#: What they may hold together; each has a decoded unit or two.
_WORKERS_BYTES_MAX = 256 << 20

#: Told how many shards are copied, and of how many.
CopyWatch = Callable[[int, int], None]


class RowCopy(msgspec.Struct, frozen=True):
    """Which copy is read instead of a shard."""

    #: Digest of the copy and of its index.
    derived: str
    derived_index: str


def can_be_copied(version: "Version") -> bool:
    """Whether rows of the version are in units, and not all in copies of its own."""
    return version.manifest.format in UNIT_FORMATS and any(_wanting(version))


def estimate_units(version: "Version") -> Units:
    """What the units of all shards hold that have no copy of their own, from a few of them."""
    shards = list(_wanting(version))
    step = max(1, len(shards) // _LOOKED_INTO_MAX)
    seen = [(shard, measure_units(version.open_shard(shard))) for shard in shards[::step][:_LOOKED_INTO_MAX]]
    share = sum(shard.bytes for shard in shards) / max(1, sum(shard.bytes for shard, _ in seen))
    count, rows, size = (sum(getattr(u, name) for _, u in seen) for name in ("count", "rows", "bytes"))
    return Units(round(count * share), round(rows * share), round(size * share))


def find_copies(version: "Version", store: Store) -> dict[str, RowCopy]:
    """The copies that there are, by the digest of the shard's index."""
    derived = {entry.name for entry in store.entries("derived")}
    whole = _whole_at(store, version)
    if whole and all(object_name(copy.derived, "derived") in derived for copy in whole.values()):
        return whole
    standing = {entry.name for entry in store.entries("copies")}
    copies = {}
    for shard in _wanting(version):
        if _key(shard) in standing and (copy := _copy_at(store, _key(shard), derived)) is not None:
            copies[shard.index] = copy
    return copies


def make_copies(
    version: "Version", store: Store, *, bytes_max: int, watch: CopyWatch | None = None
) -> dict[str, RowCopy]:
    """The copies of all shards; those that are missing are made now, if they do not take more than a limit."""
    copies = find_copies(version, store)
    missing = [shard for shard in _wanting(version) if shard.index not in copies]
    if not missing:
        return copies
    total = sum(shard.bytes for shard in _wanting(version))
    part = sum(shard.bytes for shard in missing) / max(1, total)
    units = estimate_units(version)
    _demand_room(version, store, int(units.bytes * part * _OVERHEAD), bytes_max)
    # Whoever begins at the same moment begins elsewhere. Never from a global generator: those are the training's.
    begin = random.SystemRandom().randrange(len(missing))
    missing = missing[begin:] + missing[:begin]
    bearable = max(1, _WORKERS_BYTES_MAX // max(1, 2 * units.unit_bytes))
    workers = min(_WORKERS_MAX, os.cpu_count() or 1, bearable)
    with ThreadPoolExecutor(workers, thread_name_prefix="penstock-copy") as pool:
        jobs = [pool.submit(_copied, version, shard, store) for shard in missing]
        try:
            for done, (shard, job) in enumerate(zip(missing, jobs, strict=True)):
                if watch is not None:
                    watch(done, len(missing))
                copies[shard.index] = job.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    _keep_whole(store, version, copies)
    return copies


def forget_whole(version: "Version", store: Store) -> None:
    """Forget what was said of all copies of a version, some of which are no more."""
    store.delete(_whole_key(version))


def copy_names(store: Store, shards: Iterable[Shard]) -> dict[str, str]:
    """The records of the copies of shards, by the name of the derived file that each is about."""
    standing = {entry.name for entry in store.entries("copies")}
    keys = {_key(shard) for shard in shards} & standing
    records = {key: _record_at(store, key) for key in keys}
    return {copy.derived.removeprefix("b3:"): key for key, copy in records.items() if copy is not None}


def _wanting(version: "Version") -> Iterable[Shard]:
    return (shard for shard in version.manifest.shards if not shard.derived)


def _key(shard: Shard) -> str:
    """The index of a shard has its checksums, its units and the rows that were left out."""
    return f"copies/{digest(msgspec.json.encode((COPIER, shard.index))).removeprefix('b3:')}.json"


def _record_at(store: Store, key: str) -> RowCopy | None:
    try:
        return msgspec.json.decode(store.get(key), type=RowCopy)
    except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _copy_at(store: Store, key: str, derived: set[str]) -> RowCopy | None:
    """The copy that a record is about, if it is among the derived data that there is."""
    copy = _record_at(store, key)
    if copy is not None and object_name(copy.derived, "derived") not in derived:
        # Somebody deleted it by hand; the record would stand in the way of the next one.
        store.delete(key)
        return None
    return copy


def _whole_key(version: "Version") -> str:
    return (
        f"copies/{digest(msgspec.json.encode((COPIER, 'version', version.digest))).removeprefix('b3:')}.json"
    )


def _whole_at(store: Store, version: "Version") -> dict[str, RowCopy]:
    try:
        return msgspec.json.decode(store.get(_whole_key(version)), type=dict[str, RowCopy])
    except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _keep_whole(store: Store, version: "Version", copies: dict[str, RowCopy]) -> None:
    data = msgspec.json.encode(copies, order="deterministic")
    if not store.put_if_absent(_whole_key(version), data):
        # Of copies that are no more.
        store.delete(_whole_key(version))
        store.put_if_absent(_whole_key(version), data)


def _copied(version: "Version", shard: Shard, store: Store) -> RowCopy:
    # Another process may have finished it meanwhile.
    if (standing := _record_at(store, _key(shard))) is not None:
        return standing
    with (
        events.span("registry.copy", shard=shard.name, bytes=shard.bytes),
        work_folder(store, "copy") as folder,
    ):
        copy, index = write_row_copy(version.open_shard(shard), folder)
        row_copy = RowCopy(put_object(store, "derived", copy), put_object(store, "objects", index))
    store.put_if_absent(_key(shard), msgspec.json.encode(row_copy))
    return row_copy


def _demand_room(version: "Version", store: Store, needed: int, bytes_max: int) -> None:
    """Refuse copies that would pass the limit or fill the disk, before anything is written."""
    folder = store.local_path("")
    allowed = bytes_max
    if folder is not None:
        disk = shutil.disk_usage(folder)
        allowed = min(allowed, int(disk.free - disk.total * _DISK_RESERVE))
    if needed > allowed:
        what = f"a row-addressable copy of {version.address}"
        raise DerivedTooLarge(what=what, needed_bytes=needed, allowed_bytes=max(0, allowed))
