"""How the shards of a token version are laid out, as one document: opening a version of a thousand far shards is one request.

An index says what its shard holds, but there is one per shard. For versions that are far away, what opening needs of all indexes is
kept under the version's digest when it is registered: ``layouts/<digest>.json``, a cache that is safe to delete and is made again by
whoever opens the version first.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from penstock._rust import digest
from penstock.errors import ObjectMissing
from penstock.formats.arrays.array_rows import to_dtype
from penstock.formats.shard_bytes import details_of, open_file
from penstock.registry.manifest import Shard
from penstock.registry.version import Version

#: Formats of others whose files are tokens.
_LAID_OUT = ("flat", "megatron", "npy")
#: Indexes that are fetched at once.
_FETCHERS = 16


class ShardLayout(msgspec.Struct, frozen=True, array_like=True):
    """Where the tokens of a shard are."""

    #: As numpy writes it.
    dtype: str
    #: First byte and bytes of each row, where rows follow each other without gaps.
    fixed: tuple[int, int] | None = None


#: Of versions that are in use.
_KNOWN: "WeakKeyDictionary[Version, list[ShardLayout]]" = WeakKeyDictionary()


class _Document(msgspec.Struct, frozen=True):
    """What is kept, with the digest of what it says: nothing else would notice a changed digit."""

    digest: str
    layouts: list[ShardLayout]


def keep_layouts(version: Version) -> None:
    """Write the document of a version that was just registered, if its rows are tokens."""
    if version.manifest.format in _LAID_OUT:
        layouts_of(version)


def layouts_of(version: Version) -> list[ShardLayout]:
    """The layouts of all shards, in order; asked for once per opened version."""
    known = _KNOWN.get(version)
    if known is None:
        known = _KNOWN[version] = _layouts(version)
    return known


def layout_of_first(version: Version) -> ShardLayout:
    """The layout of the first shard, which speaks for all of a version that a measure made."""
    return _layout(version, version.manifest.shards[0])


def _layouts(version: Version) -> list[ShardLayout]:
    shards, store = version.manifest.shards, version.store
    if getattr(store, "client", None) is None or len(shards) < 2:
        return _read(version, shards)
    name = f"layouts/{version.digest.removeprefix('b3:')}.json"
    try:
        document = msgspec.json.decode(store.get(name), type=_Document)
        if document.digest == _digest(version, document.layouts) and len(document.layouts) == len(shards):
            return document.layouts
    except (ObjectMissing, msgspec.MsgspecError, UnicodeDecodeError):
        pass
    layouts = _read(version, shards)
    store.put_if_absent(name, msgspec.json.encode(_Document(_digest(version, layouts), layouts)))
    return layouts


def _digest(version: Version, layouts: list[ShardLayout]) -> str:
    return digest(msgspec.json.encode((version.digest, layouts)))


def _read(version: Version, shards: list[Shard]) -> list[ShardLayout]:
    with ThreadPoolExecutor(
        max(1, min(_FETCHERS, len(shards))), thread_name_prefix="penstock-layout"
    ) as pool:
        return list(pool.map(lambda shard: _layout(version, shard), shards))


def _layout(version: Version, shard: Shard) -> ShardLayout:
    details = details_of(open_file(version.open_shard(shard)))
    if "dtype" in details:
        return ShardLayout(np.dtype(details["dtype"]).str)
    (column,) = details["columns"]
    _, dtype, shape, offset, _ = column
    kind: np.dtype[Any] = to_dtype(dtype)
    return ShardLayout(kind.str, (int(offset), int(np.prod(shape[1:], dtype=np.int64)) * kind.itemsize))
