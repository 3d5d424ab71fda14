"""Verification: every byte of every file of a version against what was registered, with exact places of damage."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._rust import digest, digest_file
from penstock.errors import CorruptShard, DataError, StoreError
from penstock.formats.contract import RawFile
from penstock.formats.shard_bytes import check_all

if TYPE_CHECKING:
    from penstock.registry.manifest import Companion, Shard
    from penstock.registry.version import Version


@dataclass(frozen=True, slots=True)
class Damage:
    """One place that is not as registered."""

    file: str
    offset: int
    reason: str


@dataclass(slots=True)
class Report:
    """What verification found."""

    version: str
    shards: int
    bytes: int = 0
    damages: list[Damage] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything is as registered."""
        return not self.damages

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {**asdict(self), "ok": self.ok}


def verify_version(version: "Version", watch: "Callable[[int, int], None] | None") -> Report:
    """Check all shards in parallel; ``watch`` is told bytes done and bytes in all."""
    report = Report(version.address, len(version.manifest.shards))
    lock = threading.Lock()

    def work(shard: "Shard") -> None:
        damages = _verify_shard(version, shard)
        with lock:
            report.damages.extend(damages)
            report.bytes += shard.bytes
            if watch is not None:
                watch(report.bytes, version.bytes)

    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="penstock-verify") as pool:
        list(pool.map(work, version.manifest.shards))
    order = {shard.name: at for at, shard in enumerate(version.manifest.shards)}
    report.damages.sort(key=lambda damage: (order.get(damage.file, -1), damage.file, damage.offset))
    return report


def _verify_shard(version: "Version", shard: "Shard") -> list[Damage]:
    damages = []
    try:
        raw = version.raw(shard.name)
        damages += _damages(raw, version.index_of(shard.index), shard.index)
        damages += [
            damage for companion in shard.companions for damage in _verify_companion(version, companion)
        ]
        if shard.derived:
            damages += _damages(
                version.derived_file(shard), version.index_of(shard.derived_index), shard.derived_index
            )
    except CorruptShard as problem:
        damages.append(Damage(problem.shard, problem.offset, problem.reason))
    except (DataError, StoreError) as problem:
        damages.append(Damage(shard.name, 0, str(problem)))
    return damages


def _damages(raw: RawFile, index: Path | bytes, index_digest: str) -> list[Damage]:
    return [Damage(file, offset, reason) for file, offset, reason in check_all(raw, index, index_digest)]


def _verify_companion(version: "Version", companion: "Companion") -> list[Damage]:
    raw = version.raw(companion.name)
    now = digest_file(raw.path) if raw.path is not None else digest(raw.read(0, raw.size_bytes))
    if now == companion.digest:
        return []
    return [Damage(raw.url, 0, f"its digest is {now}, registered was {companion.digest}")]
