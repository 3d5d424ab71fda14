"""Attributes of media files: a ``metadata.jsonl`` or ``metadata.csv`` in their folder, one row per file.

The convention is that of Hugging Face's image and audio folders: the column ``file_name`` says which file a row is
about, relative to the folder of the attributes; the other columns become fields of the file's row.
"""

import threading
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from penstock import _rust
from penstock.errors import FileUnusable
from penstock.formats.bad_rows import BadRows
from penstock.formats.contract import FieldKind, Format, OpenShard, Policy, RawFile, Row, RowReader
from penstock.formats.shard_bytes import silent

FILES = ("metadata.jsonl", "metadata.csv")
FILE_NAME = "file_name"
#: What a row has anyway.
RESERVED = ("path", "bytes")
_CHUNK_ROWS = 4096
_NUMBERS = {"int", "float"}


def is_attributes(name: str) -> bool:
    """Whether a file is called like one with attributes."""
    return PurePosixPath(name).name in FILES


def folder_of(name: str) -> str:
    """The folder of a file, with a slash at its end unless it is the root."""
    parent, slash, _ = name.rpartition("/")
    return parent + slash


@dataclass(slots=True)
class Table:
    """The rows of one file of attributes, by the file that each is about."""

    fields: list[FieldKind]
    #: Full name -> row.
    rows: dict[str, int]
    #: Bad rows: number, place, reason.
    faults: list[tuple[int, int, str]]
    reader: RowReader

    def take(self, names: list[str]) -> list[Row]:
        """The attributes of the given files."""
        wanted = np.array([self.rows[name] for name in names], dtype=np.uint64)
        table_rows = self.reader.take(wanted)
        return [{name: value for name, value in row.items() if name != FILE_NAME} for row in table_rows]


class _Tables:
    """The last tables read, since every shard of a large folder needs the same ones."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._tables: dict[tuple[str, str, Policy], Table] = {}
        self._lock = threading.Lock()

    def get(self, raw: RawFile, policy: Policy, folder: Path) -> Table:
        key = (raw.url, raw.stamp, policy)
        # Read under the lock: the scans of other shards need the very same table.
        with self._lock:
            if key not in self._tables:
                self._tables[key] = _read(raw, policy, folder)
                while len(self._tables) > self._count_max:
                    del self._tables[next(iter(self._tables))]
            return self._tables[key]


_TABLES = _Tables(4)


def _read(raw: RawFile, policy: Policy, folder: Path) -> Table:
    from penstock.formats.lines.delimited import Csv
    from penstock.formats.lines.jsonl import Jsonl

    form: Format = Csv() if raw.name.endswith(".csv") else Jsonl()
    work = folder / "attributes"
    work.mkdir(exist_ok=True)
    if raw.size_bytes == 0:
        raise FileUnusable(
            path=raw.url, reason="the file is empty", hint="leave it out, or mend what wrote it"
        )
    scanned = form.scan(raw, policy, work, silent)
    if scanned.derived is not None:
        raise FileUnusable(
            path=raw.url,
            reason="attributes are read in place, so they must be plain lines of UTF-8",
            hint="write one object per line, uncompressed",
        )
    names = [field.name for field in scanned.schema]
    if FILE_NAME not in names:
        raise FileUnusable(
            path=raw.url, reason=f"it has no column {FILE_NAME!r}, which says what file a row is about"
        )
    taken = [name for name in names if name in RESERVED]
    if taken:
        raise FileUnusable(
            path=raw.url, reason=f"an attribute may not be called {taken[0]!r}: rows have that anyway"
        )
    index = scanned.index.read_bytes()
    shard = OpenShard(raw.url, raw, scanned.rows, index, _rust.digest(index), scanned.schema)
    reader = form.open(shard)
    rows, faults = _by_name(raw, reader, scanned.rows)
    faults = [(bad.line, bad.offset, bad.reason) for bad in scanned.skipped] + faults
    return Table([field for field in scanned.schema if field.name != FILE_NAME], rows, faults, reader)


def _by_name(
    raw: RawFile, reader: RowReader, count: int
) -> tuple[dict[str, int], list[tuple[int, int, str]]]:
    number_by_name: dict[str, int] = {}
    faults = []
    top = folder_of(raw.name)
    for first in range(0, count, _CHUNK_ROWS):
        numbers = np.arange(first, min(count, first + _CHUNK_ROWS), dtype=np.uint64)
        for number, row in zip(numbers.tolist(), reader.take(numbers), strict=True):
            name = row.get(FILE_NAME)
            if not isinstance(name, str) or not name:
                faults.append((number + 1, 0, f"its {FILE_NAME} is {name!r}, not the name of a file"))
                continue
            full = top + name.removeprefix("./")
            if full in number_by_name:
                faults.append((number + 1, 0, f"a row before it is about {name!r} too"))
            else:
                number_by_name[full] = number
    return number_by_name, faults


@dataclass(slots=True)
class ShardAttributes:
    """Attributes of the members of one shard."""

    fields: list[FieldKind]
    #: Name of a member -> its attributes; members without any are absent.
    values: dict[str, Row]
    #: Members that a file of attributes covers but says nothing about -> that file.
    missing: dict[str, RawFile]


def join(raw: RawFile, policy: Policy, folder: Path, bad: BadRows) -> ShardAttributes:
    """Find the attributes of a shard's members; rows about files that are not there are bad, as are second ones."""
    names = [member.name for member in raw.members]
    present = set(names)
    result = ShardAttributes([], {}, {})
    for file in raw.attributes:
        table = _TABLES.get(file, policy, folder)
        if raw.bounds[0] == "":
            # Said once, by the first shard.
            for line, offset, reason in table.faults:
                bad.add(line, offset, reason, file=file)
        for name, row in table.rows.items():
            if name not in present and _within(name, raw.bounds):
                bad.add(row + 1, 0, f"it is about {name!r}, which is not among the files", file=file)
        covered = [name for name in names if name.startswith(folder_of(file.name))]
        described = [name for name in covered if name in table.rows]
        twice = next((name for name in described if name in result.values), None)
        if twice is not None:
            raise FileUnusable(path=file.url, reason=f"another file has attributes of {twice!r} too")
        result.values.update(zip(described, table.take(described), strict=True))
        result.missing.update({name: file for name in covered if name not in table.rows})
        result.fields = _merge(file, result.fields, table.fields, policy)
    result.missing = {name: file for name, file in result.missing.items() if name not in result.values}
    return result


def _within(name: str, bounds: tuple[str, str]) -> bool:
    return name >= bounds[0] and (not bounds[1] or name < bounds[1])


def _merge(file: RawFile, fields: list[FieldKind], more: list[FieldKind], policy: Policy) -> list[FieldKind]:
    known: dict[str, FieldKind] = {field.name: field for field in fields}
    for field in more:
        before = known.setdefault(field.name, field)
        kind = _kind(before.kind, field.kind)
        if kind is None and not policy.mixed:
            reason = (
                f"attribute {field.name!r} is {field.kind}, but {before.kind} in another file of attributes"
            )
            raise FileUnusable(path=file.url, reason=reason)
        known[field.name] = FieldKind(field.name, kind or "mixed", before.optional or field.optional)
    return list(known.values())


def _kind(before: str, now: str) -> str | None:
    if before == now or now == "null":
        return before
    if before == "null":
        return now
    return "float" if {before, now} == _NUMBERS else None


def presence(fields: list[FieldKind], values: list[Row]) -> list[FieldKind]:
    """The fields, optional where one of the rows lacks them or has null."""
    return [
        FieldKind(field.name, field.kind, any(_lacks(row, field.name) for row in values)) for field in fields
    ]


def _lacks(row: dict[str, Any], name: str) -> bool:
    return row.get(name) is None
