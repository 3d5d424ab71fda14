"""JSON lines: one object per line, plain, zstd or gzip."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from penstock import _rust
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, Row, RowNumbers, Scanned
from penstock.formats.packed import packing_of, scan_lines, unpacked_head
from penstock.formats.reading import gather, open_file


class Jsonl:
    """See the module's description."""

    name = "jsonl"
    suffixes: Sequence[str] = (
        ".jsonl",
        ".ndjson",
        ".jsonl.zst",
        ".jsonl.gz",
        ".json",
        ".json.gz",
        ".json.zst",
    )

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """The first line with anything on it is a JSON object, or the beginning of a very long one."""
        text = unpacked_head(head, packing_of(head)).removeprefix(b"\xef\xbb\xbf").lstrip()
        line, newline, _ = text.partition(b"\n")
        if not line.startswith(b"{"):
            return False
        if not newline and len(text) >= len(head):
            return b'"' in line[:256]
        try:
            return isinstance(msgspec.json.decode(line), dict)
        except msgspec.DecodeError:
            return raw.name.endswith(tuple(self.suffixes))

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every line is checked to be a whole JSON object."""
        return scan_lines("jsonl", raw, policy, folder, progress)

    def open(self, shard: OpenShard) -> "JsonRows":
        """Rows are byte ranges of lines."""
        return JsonRows(open_file(shard), shard.fields)


class JsonRows:
    """Rows of one JSON lines shard."""

    def __init__(self, file: _rust.ShardFile, fields: Sequence[str] | None = None) -> None:
        self._file = file
        # msgspec finds only names of ASCII characters in a type.
        self.selects_fields = fields is not None and all(map(str.isascii, fields))
        self._decode: Callable[[memoryview], Row] = _decoder(fields if self.selects_fields else None).decode

    def take(self, rows: RowNumbers) -> list[Row]:
        """Gathered and checked in Rust, decoded here."""
        decode = self._decode
        return [decode(line) for line in gather(self._file, rows)]


def _decoder(fields: Sequence[str] | None) -> "msgspec.json.Decoder[Any]":
    """Decodes whole rows, or only some of their fields: the values of others are passed over."""
    if fields is None:
        return msgspec.json.Decoder()
    chosen = TypedDict("chosen", dict.fromkeys(fields, Any), total=False)  # type: ignore[misc] # names are values
    return msgspec.json.Decoder(chosen)
