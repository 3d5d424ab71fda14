"""What changed between two versions.

Shards are compared by digest, so equal ones cost nothing. Rows are compared as multisets of content hashes, reading
only the shards that differ; a removed and an added row at the same place of the same shard count as one changed row.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock._rust import quick_hash

if TYPE_CHECKING:
    from penstock.registry.manifest import Shard
    from penstock.registry.version import Version

_CHUNK_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Difference:
    """Shards and rows that one version has and another has not. Row counts are None when rows were not compared."""

    before: str
    after: str
    fields_added: list[str]
    fields_removed: list[str]
    fields_changed: dict[str, tuple[str, str]]
    shards_added: list[str]
    shards_removed: list[str]
    shards_changed: list[str]
    shards_equal: int
    rows_added: int | None
    rows_removed: int | None
    rows_changed: int | None

    @property
    def equal(self) -> bool:
        """Whether the two hold the same shards with the same schema."""
        shards = self.shards_added or self.shards_removed or self.shards_changed
        return not (shards or self.fields_added or self.fields_removed or self.fields_changed)

    def to_json(self) -> dict[str, Any]:
        """The difference as plain values."""
        return {**asdict(self), "equal": self.equal}


def compare(before: "Version", after: "Version", *, rows: bool) -> Difference:
    """Compare two versions, with or without reading rows."""
    fields = {f.name: f.kind for f in before.schema}
    fields_now = {f.name: f.kind for f in after.schema}
    shards = {s.name: s for s in before.manifest.shards}
    shards_now = {s.name: s for s in after.manifest.shards}
    both = [name for name in shards if name in shards_now]
    changed = [name for name in both if _content(shards[name]) != _content(shards_now[name])]
    added, removed, altered = _rows(before, after, shards, shards_now) if rows else (None, None, None)
    return Difference(
        before=before.address,
        after=after.address,
        fields_added=[name for name in fields_now if name not in fields],
        fields_removed=[name for name in fields if name not in fields_now],
        fields_changed={
            name: (kind, fields_now[name])
            for name, kind in fields.items()
            if fields_now.get(name, kind) != kind
        },
        shards_added=[name for name in shards_now if name not in shards],
        shards_removed=[name for name in shards if name not in shards_now],
        shards_changed=changed,
        shards_equal=len(both) - len(changed),
        rows_added=added,
        rows_removed=removed,
        rows_changed=altered,
    )


def _content(shard: "Shard") -> tuple[str, tuple[tuple[str, int | str | None], ...]]:
    """What decides the rows of a shard: its bytes, and what its folders say."""
    return shard.digest, tuple(shard.partition.items())


def _rows(
    before: "Version", after: "Version", shards: "dict[str, Shard]", shards_now: "dict[str, Shard]"
) -> tuple[int, int, int]:
    """Rows added, removed and changed, among the shards whose digest the other version does not have."""
    theirs = Counter(_content(shard) for shard in shards_now.values())
    ours = Counter(_content(shard) for shard in shards.values())
    hashes = _hashes(before, [n for n, shard in shards.items() if not theirs[_content(shard)]])
    hashes_now = _hashes(after, [n for n, shard in shards_now.items() if not ours[_content(shard)]])
    old, new = Counter(hashes.values()), Counter(hashes_now.values())
    gone, come = old - new, new - old
    altered = 0
    for place, was in hashes.items():
        now = hashes_now.get(place)
        if now is not None and now != was and gone[was] > 0 and come[now] > 0:
            gone[was] -= 1
            come[now] -= 1
            altered += 1
    return come.total(), gone.total(), altered


def _hashes(version: "Version", names: list[str]) -> dict[tuple[str, int], int]:
    hashes = {}
    for name in names:
        start, stop = version.shard_rows(name)
        for first in range(start, stop, _CHUNK_ROWS):
            for row, sample in enumerate(
                version.take(range(first, min(stop, first + _CHUNK_ROWS))), start=first
            ):
                hashes[name, row - start] = quick_hash(
                    msgspec.msgpack.encode(sample, enc_hook=_plain, order="deterministic")
                )
    return hashes


def _plain(value: Any) -> Any:
    """Arrays as their type, shape and bytes."""
    return [str(value.dtype), list(value.shape), value.tobytes()]
