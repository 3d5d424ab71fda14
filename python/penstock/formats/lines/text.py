"""Plain text: one row per line, ``{"text": …}``; compressed or not. For one row per file use the format ``documents``."""

from collections.abc import Sequence
from pathlib import Path

from penstock import _rust
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, Row, RowNumbers, Scanned
from penstock.formats.lines.compression import scan_lines, unpacked_head
from penstock.formats.lines.transcript import encoding_of
from penstock.formats.shard_bytes import gather, open_file

_PACKINGS = ("", ".zst", ".gz", ".bz2", ".xz", ".lz4")


class Text:
    """The format ``text``: one row per line."""

    name = "text"
    suffixes: Sequence[str] = (".text", *(".txt" + packing for packing in _PACKINGS))

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It is UTF-8 without control characters, and is called like a text."""
        return raw.name.lower().endswith(tuple(self.suffixes)) and is_text(unpacked_head(raw, head))

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one."""
        return raws

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """Every line is checked to be UTF-8."""
        return scan_lines("text", raw, policy, folder, progress)

    def open(self, shard: OpenShard) -> "TextRows":
        """Rows are byte ranges of lines."""
        return TextRows(open_file(shard))


class TextRows:
    """Rows of one text shard."""

    def __init__(self, file: _rust.ShardFile) -> None:
        self._file = file

    def take(self, rows: RowNumbers) -> list[Row]:
        """The lines, without their ends."""
        return [{"text": str(line, "utf-8")} for line in gather(self._file, rows)]


def is_text(head: bytes) -> bool:
    """Whether the beginning of a file is text: UTF-8 without zero bytes, or what a byte order mark announces."""
    if encoding_of(head) != "utf-8":
        return True
    if b"\0" in head:
        return False
    try:
        # The end of what we looked at may be in the middle of a character.
        head[: max(0, len(head) - 4)].decode("utf-8", errors="strict")
    except UnicodeDecodeError as reason:
        return reason.start >= len(head) - 8
    return True
