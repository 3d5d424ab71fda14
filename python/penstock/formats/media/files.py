"""Folders of media files: one row per file, ``{"path": …, "bytes": …}`` and its attributes, if there are any.

Up to ``MEMBERS_MAX`` files, in order of their names, are one shard. Its index has the name, length and checksums of each
file, so that single files are read and checked without touching the others (see ``joined_files.py``).
"""

import copy
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from penstock import _rust
from penstock.errors import CorruptShard, FileEmpty, FileUnusable, IndexDamaged, ObjectMissing
from penstock.formats.bad_rows import BadRows
from penstock.formats.contract import (
    FieldKind,
    OpenShard,
    Policy,
    Progress,
    RawFile,
    Row,
    RowNumbers,
    Scanned,
)
from penstock.formats.joined_files import JoinedFiles, places
from penstock.formats.media import attributes
from penstock.formats.shard_bytes import KnownRows, details_of, gather, members_source, scan_known
from penstock.store import Store

MEMBERS_MAX = 10_000
#: Stretches of files with one label; more would make shards of a few files each.
GROUPS_MAX = 1_000
#: Beginnings that only media have.
_MARKS = (
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"GIF87a",
    b"GIF89a",
    b"II*\0",
    b"MM\0*",
    b"fLaC",
    b"OggS",
    b"ID3",
    b"%PDF-",
    b"\x1a\x45\xdf\xa3",
)
_RIFF = (b"WEBP", b"WAVE", b"AVI ")
_MP3_FRAMES = (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa")


class Files:
    """The format ``files``: one row per media file."""

    name = "files"
    #: The field that holds what is in a file, and its kind.
    content = FieldKind("bytes", "bytes")
    suffixes: Sequence[str] = (
        ".png",
        ".jpg",
        ".jpeg",
        ".gif",
        ".webp",
        ".tif",
        ".tiff",
        ".wav",
        ".flac",
        ".mp3",
        ".ogg",
        ".mp4",
        ".mov",
        ".mkv",
        ".webm",
        ".pdf",
    )

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It begins as an image, a sound, a film or a PDF does."""
        if head.startswith(_MARKS) or (head.startswith(b"RIFF") and head[8:12] in _RIFF):
            return True
        return head[4:8] == b"ftyp" or (head.startswith(_MP3_FRAMES) and raw.name.lower().endswith(".mp3"))

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Runs of files by name; files of attributes go with the shards that have files in their folders."""
        about = [raw for raw in raws if attributes.is_attributes(raw.name)]
        members = sorted(
            (raw for raw in raws if not attributes.is_attributes(raw.name)), key=lambda raw: raw.name
        )
        _check_one_each(about)
        runs = [members[at : at + MEMBERS_MAX] for at in range(0, len(members), MEMBERS_MAX)]
        return [_shard(number, runs, about) for number in range(len(runs))]

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every file is summed; files that are empty, too large or without attributes are bad rows."""
        bad = BadRows(raw.url, policy)
        joined = attributes.join(raw, policy, folder, bad)
        kept: list[RawFile] = []
        for number, member in enumerate(raw.members, start=1):
            fault = self.fault(member) or _fault(member, policy, joined.missing.get(member.name))
            if fault is None:
                kept.append(member)
            else:
                bad.add(number, 0, fault, file=member)
        if not any(member.size_bytes for member in kept):
            raise FileEmpty(path=raw.url, reason="it has no rows")
        _check_name_free(joined, raw, self.content.name)
        values = [joined.values.get(member.name, {}) for member in kept]
        fields = attributes.presence(joined.fields, values)
        result = _sum(raw, kept, values, policy, folder, progress)
        result.schema = [FieldKind("path", "string"), self.content, *fields]
        result.skipped = bad.found
        result.companions = list(raw.attributes)
        return result

    def fault(self, member: RawFile) -> str | None:
        """Why a file cannot be a row, if it cannot."""
        return "the file is empty" if member.size_bytes == 0 else None

    def locate(self, store: Store, name: str, index: Path | bytes, index_digest: str) -> RawFile:
        """A shard again from its index, with its files in ``store``."""
        members = tuple(RawFile(store, *member, "") for member in _members(index, index_digest))
        return RawFile(store, name, sum(member.size_bytes for member in members), "", members)

    def open(self, shard: OpenShard) -> "FileRows":
        """Rows are whole files."""
        return FileRows(shard)


class FileRows:
    """Rows of one run of files."""

    def __init__(self, shard: OpenShard) -> None:
        self._label = shard.label
        self._joined = JoinedFiles(shard.raw.members)
        source = members_source(shard.label, shard.raw, self._joined)
        self._file = _rust.ShardFile(source, shard.index, shard.index_digest)
        self._values: list[Row] = json.loads(details_of(self._file)["attributes"])

    def take(self, rows: RowNumbers) -> list[Row]:
        """Gathered and checked in Rust; damage is said of the file that has it."""
        try:
            contents = gather(self._file, rows)
        except CorruptShard as problem:
            if problem.shard != self._label:
                raise
            member, offset = self._joined.place(problem.offset)
            raise CorruptShard(
                shard=member.url, offset=offset, reason=problem.reason, steps=problem.steps
            ) from problem
        except ObjectMissing as problem:
            raise CorruptShard(shard=problem.url, offset=0, reason="the file is gone") from problem
        return [
            {"path": self._file.key(number), **self.content(data), **self._attributes(number)}
            for number, data in zip(rows.tolist(), contents, strict=True)
        ]

    def content(self, data: memoryview) -> Row:
        """What is in a file, as a field."""
        return {"bytes": bytes(data)}

    def _attributes(self, number: int) -> Row:
        # Whoever gets a row may change it.
        return copy.deepcopy(self._values[number]) if self._values else {}


def divide_shards(shards: list[RawFile], label_of: Callable[[RawFile], str | None]) -> list[RawFile]:
    """The same files in the same order, in shards whose files all have the same label."""
    members = [member for shard in shards for member in shard.members]
    groups = [list(group) for _, group in itertools.groupby(members, key=label_of)]
    if len(groups) > GROUPS_MAX:
        raise FileUnusable(
            path=shards[0].store.url,
            reason=f"in the order of their names, files change between splits {len(groups) - 1:,} times",
            hint="put each split into a folder, or take one with --split NAME",
        )
    runs = [group[at : at + MEMBERS_MAX] for group in groups for at in range(0, len(group), MEMBERS_MAX)]
    return [_shard(number, runs, list(shards[0].attributes)) for number in range(len(runs))]


def _check_one_each(about: list[RawFile]) -> None:
    seen: set[str] = set()
    for raw in about:
        folder = attributes.folder_of(raw.name)
        if folder in seen:
            raise FileUnusable(path=raw.url, reason="there is another file of attributes beside it")
        seen.add(folder)


def _shard(number: int, runs: list[list[RawFile]], about: list[RawFile]) -> RawFile:
    run = runs[number]
    bounds = (
        run[0].name if number else "",
        runs[number + 1][0].name if number + 1 < len(runs) else "",
    )
    top = run[0].store
    stamps = [(raw.name, raw.stamp) for raw in about]
    stamp = _rust.digest(msgspec.json.encode((bounds, stamps)))
    size = sum(raw.size_bytes for raw in run)
    return RawFile(top, f"files-{number:05}", size, stamp, tuple(run), tuple(about), bounds)


def _fault(member: RawFile, policy: Policy, silent_about: RawFile | None) -> str | None:
    if member.size_bytes > policy.row_bytes_max:
        return f"it is longer than {policy.row_bytes_max} bytes"
    if silent_about is not None:
        return f"{PurePosixPath(silent_about.name).name} has no row about it"
    return None


def _check_name_free(joined: attributes.ShardAttributes, raw: RawFile, name: str) -> None:
    if any(field.name == name for field in joined.fields):
        path = raw.attributes[0].url
        raise FileUnusable(
            path=path, reason=f"an attribute may not be called {name!r}: rows have that anyway"
        )


def _sum(
    raw: RawFile, kept: list[RawFile], values: list[Row], policy: Policy, folder: Path, progress: Progress
) -> Scanned:
    import numpy as np

    lengths = [member.size_bytes for member in kept]
    known = KnownRows(
        rows=len(kept),
        schema=[],
        offsets=np.array(places(lengths)[:-1], dtype=np.uint64),
        lengths=np.array(lengths, dtype=np.uint32),
        names=[member.name for member in kept],
        # As text, since numbers in it must come back exactly as they are.
        details={"attributes": json.dumps(values if any(values) else [])},
    )
    part = RawFile(raw.store, raw.name, sum(lengths), raw.stamp, tuple(kept))
    result = scan_known("files", part, policy, folder / "index.arrow", progress, known)
    # Space between files is not counted, and names and lengths are part of what a folder is.
    result.bytes = sum(lengths)
    result.digest = _rust.digest(
        msgspec.json.encode((result.digest, [(member.name, member.size_bytes) for member in kept]))
    )
    return result


def _members(index: Path | bytes, index_digest: str) -> list[tuple[str, int]]:
    """Names and lengths of the files of a shard; an index is an Arrow file whose columns are lists."""
    import pyarrow as pa

    data = index if isinstance(index, bytes) else index.read_bytes()
    actual = _rust.digest(data)
    if actual != index_digest:
        raise IndexDamaged(index=index_digest, reason=f"its digest is {actual}")
    table = pa.ipc.open_file(pa.BufferReader(data)).read_all().select(["name", "length"])
    names, lengths = (column.combine_chunks().flatten().to_pylist() for column in table.columns)
    return list(zip(names, lengths, strict=True))
