"""JSON: one object per line (JSON lines), one array of objects, or objects over several lines.

Lines are read in place, also in many small zstd frames; whatever else they come in through a copy made once.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from penstock import _rust
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, Row, RowNumbers, Scanned
from penstock.formats.lines.compression import scan_lines, unpacked_head
from penstock.formats.lines.transcript import layout_of, text_head
from penstock.formats.shard_bytes import details_of, gather, open_file

_PACKINGS = ("", ".zst", ".gz", ".bz2", ".xz", ".lz4")


class Jsonl:
    """The format ``jsonl``: one row per JSON object."""

    name = "jsonl"
    suffixes: Sequence[str] = tuple(
        name + packing for name in (".jsonl", ".ndjson", ".json") for packing in _PACKINGS
    )

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It begins with a JSON object, alone or in an array, or with the beginning of a very long one."""
        named = raw.name.lower().endswith(tuple(self.suffixes))
        inside = unpacked_head(raw, head)
        if named and not inside:
            # The scan says that there is nothing inside, or that it cannot be read.
            return True
        text = text_head(inside).lstrip()
        if text.startswith("["):
            return named or text[1:].lstrip().startswith("{")
        line, newline, _ = text.partition("\n")
        if not line.startswith("{"):
            return False
        if not newline and len(text) >= len(head):
            return '"' in line[:256]
        try:
            return named or isinstance(json.loads(line), dict)
        except (ValueError, RecursionError):
            return layout_of(text) == "values" and '"' in text[:256]

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every row is checked to be a whole JSON object."""
        return scan_lines("jsonl", raw, policy, folder, progress)

    def open(self, shard: OpenShard) -> "JsonRows":
        """Rows are byte ranges of lines."""
        return JsonRows(open_file(shard), shard.fields)


class JsonRows:
    """Rows of one JSON lines shard."""

    def __init__(self, file: _rust.ShardFile, fields: Sequence[str] | None = None) -> None:
        self._file = file
        nan = details_of(file).get("nan")
        # msgspec finds only names of ASCII characters in a type.
        self.selects_fields = fields is not None and nan is None and all(map(str.isascii, fields))
        self._decode = _decoder(nan, fields if self.selects_fields else None)

    def take(self, rows: RowNumbers) -> list[Row]:
        """Gathered and checked in Rust, decoded here."""
        decode = self._decode
        return [decode(line) for line in gather(self._file, rows)]


def _decoder(nan: str | None, fields: Sequence[str] | None) -> Callable[[memoryview], Any]:
    """Decodes a line, or only some of its fields: the values of others are passed over.

    ``nan`` is what words that are no numbers stand for, where they may stand.
    """
    if fields is not None:
        chosen = TypedDict("chosen", dict.fromkeys(fields, Any), total=False)  # type: ignore[misc] # names are values
        return msgspec.json.Decoder(chosen).decode
    if nan is None:
        return msgspec.json.Decoder().decode
    decode = json.JSONDecoder(parse_constant=(lambda _: None) if nan == "null" else float).decode
    return lambda line: decode(str(line, "utf-8"))
