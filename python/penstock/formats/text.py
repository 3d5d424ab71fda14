"""Plain text: one row per line, ``{"text": …}``; plain, zstd or gzip. For one row per file use the format ``files``."""

from collections.abc import Sequence
from pathlib import Path

from penstock import _rust
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, Row, RowNumbers, Scanned
from penstock.formats.packed import packing_of, scan_lines, unpacked_head
from penstock.formats.reading import gather, open_file


class Text:
    """See the module's description."""

    name = "text"
    suffixes: Sequence[str] = (".txt", ".text", ".txt.zst", ".txt.gz")

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """It is UTF-8 without control characters, and is called like a text."""
        text = unpacked_head(head, packing_of(head))
        if b"\0" in text or not raw.name.endswith(tuple(self.suffixes)):
            return False
        try:
            # The end of what we looked at may be in the middle of a character.
            text[: max(0, len(text) - 4)].decode("utf-8", errors="strict")
        except UnicodeDecodeError as reason:
            return reason.start >= len(text) - 8
        return True

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
