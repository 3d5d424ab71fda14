"""Export: the rows of a version in another format, registered with lineage, equal row by row.

Each target has a writer in ``formats/export``. Shards hold a stated number of rows; files appear under their final names
only when whole. What a format cannot hold (bytes in JSON, text in token files) is an error that names the row.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import events
from penstock.errors import UsageError
from penstock.formats.contract import FieldKind, Policy
from penstock.formats.export import WRITERS, writer_named
from penstock.formats.export.mds_writer import index_of
from penstock.registry.version import Access
from penstock.registry.version_entry import About

if TYPE_CHECKING:
    from penstock.registry.registry import Registry
    from penstock.registry.version import Version

_CHUNK_ROWS = 1024
_ROW_BYTES_MAX = (1 << 32) - 1
ROWS_PER_SHARD = 100_000


def export_version(
    registry: "Registry",
    version: "Version",
    target: str,
    folder: Path,
    *,
    name: str | None = None,
    rows_per_shard: int = ROWS_PER_SHARD,
    watch: Callable[[int, int], None] | None = None,
) -> "Version":
    """Write all rows into a new folder and register them, with ``derived_from`` naming the version they came from.

    Of a version with chosen fields (``with_fields``) only those are written.
    """
    if target not in WRITERS:
        raise UsageError(f"an export must be to one of {', '.join(WRITERS)}, got {target!r:.50}")
    if rows_per_shard < 1:
        raise UsageError(f"a shard needs at least one row, not {rows_per_shard}")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(
            f"{folder} is not empty", hint="export into a new folder; nothing is ever overwritten"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with events.span("registry.export", version=version.address, target=target):
        for number, first in enumerate(range(0, version.rows, rows_per_shard)):
            _write_shard(
                version, target, folder, number, range(first, min(version.rows, first + rows_per_shard))
            )
            if watch is not None:
                watch(min(version.rows, first + rows_per_shard), version.rows)
        if target == "mds":
            _write_index(folder)
    about = About(note=f"export of {version.address} to {target}", derived_from=(version.digest,))
    writer = writer_named(target)
    # What the version holds, its export may hold.
    policy = Policy(
        mixed=any(field.kind == "mixed" for field in _schema(version)), row_bytes_max=_ROW_BYTES_MAX
    )
    called = name or f"{version.name}-{target.replace('.', '-')}"
    return registry.register(called, [folder], format=writer.format, policy=policy, about=about)


def with_fields(version: "Version", fields: Sequence[str]) -> "Version":
    """The version without its other fields: what a form cannot hold is left out because it was said, never by itself."""
    known = [field.name for field in version.schema]
    unknown = sorted(set(fields) - set(known))
    if unknown or not fields:
        missing = ", ".join(unknown) or "none was named"
        raise UsageError(f"unknown fields: {missing}", hint=f"{version.address} has {', '.join(known)}")
    return version.accessed(Access(fields=tuple(fields)))


def _schema(version: "Version") -> list[FieldKind]:
    """The fields that are written."""
    chosen = version.access.fields
    return [
        FieldKind(field.name, field.kind, field.optional)
        for field in version.schema
        if chosen is None or field.name in chosen
    ]


def _write_shard(version: "Version", target: str, folder: Path, number: int, rows: range) -> None:
    stem = f"{version.name.replace('/', '-')}-{number:05d}"
    writer = writer_named(target)(folder, stem, _schema(version))
    try:
        for first in range(rows.start, rows.stop, _CHUNK_ROWS):
            writer.add(version.take(range(first, min(rows.stop, first + _CHUNK_ROWS))), first)
        finished = list(writer.finish())
    except BaseException:
        writer.abandon()
        raise
    for staged, final in finished:
        _publish(staged, final)


def _write_index(folder: Path) -> None:
    staged = folder / ".index.json.part"
    staged.write_bytes(index_of(folder))
    _publish(staged, folder / "index.json")


def _publish(staged: Path, final: Path) -> None:
    with staged.open("rb") as file:
        os.fsync(file.fileno())
    staged.rename(final)
