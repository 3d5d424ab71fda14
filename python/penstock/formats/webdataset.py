"""WebDataset archives: consecutive members of a tar with one key are a row, ``{"__key__": …, extension: value}``.

Plain archives are read in place; compressed ones through a plain copy made once. Members with a well-known extension
are decoded, and are checked to be decodable when the archive is registered.
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock import _rust
from penstock.errors import FileUnusable
from penstock.formats.badness import BadRows
from penstock.formats.contract import (
    BadLine,
    FieldKind,
    OpenShard,
    Policy,
    Progress,
    RawFile,
    Row,
    RowNumbers,
    Scanned,
)
from penstock.formats.packed import packing_of, unpacked_head
from penstock.formats.reading import Source, choices, gather, open_file, scanned, source_of, steps
from penstock.formats.unpacking import scan_unpacked

KEY = "__key__"
_HEADER_BYTES = 512
#: Rows looked at together while checking.
_CHECK_BYTES = 16 << 20


class WebDataset:
    """See the module's description."""

    name = "webdataset"
    suffixes: Sequence[str] = (".tar", ".tar.gz", ".tgz", ".tar.zst")

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """What is inside, if it is compressed, begins with the header of a tar."""
        import tarfile

        inside = unpacked_head(head, packing_of(head))[:_HEADER_BYTES]
        if inside[257:262] == b"ustar":
            return True
        try:
            tarfile.TarInfo.frombuf(inside, "utf-8", "surrogateescape")
        except tarfile.HeaderError:
            return False
        return True

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every member is found by its header, and decoded where its extension says how."""
        packing = packing_of(raw.read(0, 4))
        if packing == "plain":
            return _Scan(raw.url, source_of(raw), policy).run(folder / "index.arrow", progress)
        return scan_unpacked(
            raw,
            packing,
            policy,
            folder,
            progress,
            lambda copy, index: _Scan(raw.url, copy, policy).run(index, lambda *_: None),
        )

    def open(self, shard: OpenShard) -> "ArchiveRows":
        """Rows are byte ranges of members."""
        return ArchiveRows(open_file(shard), shard.label)


class ArchiveRows:
    """Rows of one archive."""

    def __init__(self, file: _rust.ShardFile, label: str) -> None:
        self._file = file
        self._label = label

    def take(self, rows: RowNumbers) -> list[Row]:
        """Gathered and checked in Rust, decoded here."""
        found = zip(rows.tolist(), gather(self._file, rows), strict=True)
        return [self._row(number, bytes(row)) for number, row in found]

    def _row(self, number: int, row: bytes) -> Row:
        values: Row = {KEY: self._file.key(number)}
        for extension, start, end in _rust.archive_members(self._label, row):
            values[extension] = decode(extension, row[start:end])[0]
        return values


def decode(extension: str, data: bytes) -> tuple[Any, str]:
    """A member's value and its kind; raises ValueError when it is not what its extension says."""
    decoder = _DECODERS.get(extension.rpartition(".")[2])
    return (data, "bytes") if decoder is None else decoder(data)


def _json(data: bytes) -> tuple[Any, str]:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError as reason:
        raise ValueError(f"is not valid JSON: {reason}") from reason
    return value, _JSON_KINDS[type(value)]


def _text(data: bytes) -> tuple[Any, str]:
    try:
        return data.decode("utf-8"), "string"
    except UnicodeDecodeError as reason:
        raise ValueError(f"is not UTF-8 at byte {reason.start}") from reason


def _number(data: bytes) -> tuple[Any, str]:
    text = data.strip()
    if re.fullmatch(rb"[+-]?[0-9]{1,4000}", text) is None:
        raise ValueError(f"is not a whole number: {text[:20]!r}")
    return int(text), "int"


def _array(data: bytes) -> tuple[Any, str]:
    try:
        return np.load(io.BytesIO(data), allow_pickle=False), "array"
    except (ValueError, OSError, EOFError, TypeError, SyntaxError, MemoryError) as reason:
        raise ValueError(f"is not a valid npy array: {reason}") from reason


_JSON_KINDS = {
    dict: "object",
    list: "list",
    str: "string",
    int: "int",
    float: "float",
    bool: "bool",
    type(None): "null",
}
#: As WebDataset decodes them; nothing that would run code, such as pickles, and no images.
_DECODERS: dict[str, Callable[[bytes], tuple[Any, str]]] = {
    "json": _json,
    "jsn": _json,
    "txt": _text,
    "text": _text,
    "transcript": _text,
    "cls": _number,
    "cls2": _number,
    "class": _number,
    "count": _number,
    "index": _number,
    "inx": _number,
    "id": _number,
    "npy": _array,
}


class _Scan:
    """One pass of Rust over the headers, and one here over the members that can be decoded."""

    def __init__(self, label: str, source: Source, policy: Policy) -> None:
        self._label = label
        self._source = source
        self._policy = policy
        self._kinds: dict[str, str] = {}
        self._nulls: set[str] = set()

    def run(self, index: Path, progress: Progress) -> Scanned:
        """Find, check and index the rows."""
        found = _rust.scan_rows(
            "tar",
            self._source,
            index,
            shard=self._label,
            choices=choices(self._policy),
            progress=steps(progress),
        )
        result = scanned(found, index)
        extensions = [field.name for field in result.schema]
        if KEY in extensions:
            reason = f"a member has the extension {KEY}, which is the name of the key"
            raise FileUnusable(path=self._label, reason=reason)
        if any(extension.rpartition(".")[2] in _DECODERS for extension in extensions):
            self._check(result, found["details"])
        result.schema = [
            FieldKind(KEY, "string"),
            *(
                FieldKind(
                    field.name,
                    self._kinds.get(field.name, field.kind),
                    field.optional or field.name in self._nulls,
                )
                for field in result.schema
            ),
        ]
        return result

    def _check(self, result: Scanned, details: str) -> None:
        file = _rust.ShardFile(self._source, result.index, _rust.digest_file(result.index))
        bad = BadRows(self._label, self._policy, result.skipped)
        ordinals = _ordinals(result.skipped)
        good: list[int] = []
        for number, row in _all_rows(file):
            ordinal = next(ordinals)
            fault = self._fault(bytes(row))
            if fault is None:
                good.append(number)
            else:
                span = file.span(number)
                bad.add(ordinal, span[0] if span else 0, fault)
        if not good:
            raise FileUnusable(path=self._label, reason="it has no rows")
        if len(good) < result.rows:
            self._index_again(file, good, result.index, details)
            result.rows = len(good)
            result.skipped = sorted(bad.found, key=lambda each: each.line)

    def _fault(self, row: bytes) -> str | None:
        """What is wrong with a row; a good one adds to what is known of fields."""
        kinds: dict[str, str] = {}
        for extension, start, end in _rust.archive_members(self._label, row):
            # Most bytes are in members that are not decoded, and those are not copied here.
            if (decoder := _DECODERS.get(extension.rpartition(".")[2])) is None:
                continue
            try:
                kind = decoder(row[start:end])[1]
            except ValueError as reason:
                return f"member `{extension}` {reason}"
            joined = _join(self._kinds.get(extension, "null"), kind)
            if joined is None and not self._policy.mixed:
                return f"member `{extension}` is {kind}, but was {self._kinds[extension]} before"
            kinds[extension] = joined or "mixed"
            if kind == "null":
                self._nulls.add(extension)
        self._kinds.update(kinds)
        return None

    def _index_again(self, file: _rust.ShardFile, good: list[int], index: Path, details: str) -> None:
        spans = [span for number in good if (span := file.span(number)) is not None]
        known = {
            "rows": len(good),
            "offsets": np.array([span[0] for span in spans], dtype=np.uint64),
            "lengths": np.array([span[1] for span in spans], dtype=np.uint32),
            "names": [file.key(number) for number in good],
            "details": details,
        }
        _rust.scan_known(
            "tar",
            self._source,
            index,
            shard=self._label,
            choices=choices(self._policy),
            progress=lambda *_: None,
            known=known,
        )


def _join(before: str, now: str) -> str | None:
    if before == now or now == "null":
        return before
    if before == "null":
        return now
    if {before, now} == {"int", "float"}:
        return "float"
    return "mixed" if before == "mixed" else None


def _ordinals(skipped: list[BadLine]) -> Iterator[int]:
    """Places of the good samples among all, counted from 1."""
    gone = {bad.line for bad in skipped}
    number = 0
    while True:
        number += 1
        if number not in gone:
            yield number


def _all_rows(file: _rust.ShardFile) -> Iterator[tuple[int, memoryview]]:
    """Every row, read in stretches of a bounded size."""
    waiting: list[int] = []
    waiting_bytes = 0
    for number in range(file.rows):
        span = file.span(number)
        length = span[1] if span else 0
        if waiting and waiting_bytes + length > _CHECK_BYTES:
            yield from zip(waiting, gather(file, np.array(waiting, dtype=np.uint64)), strict=True)
            waiting, waiting_bytes = [], 0
        waiting.append(number)
        waiting_bytes += length
    yield from zip(waiting, gather(file, np.array(waiting, dtype=np.uint64)), strict=True)
