"""JSON lines in small zstd frames, so that the export can be read at random in place."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock import _rust
from penstock.formats.contract import FieldKind, Row
from penstock.formats.export.value_limits import Refusals, json_flaw, json_text


class JsonlWriter:
    """Collects plain lines in a temporary file and frames them at the end."""

    format = "jsonl"

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None:
        self._final = folder / f"{name}.jsonl.zst"
        self._plain = folder / f".{name}.jsonl.part"
        self._file = self._plain.open("wb")
        self._refusals = Refusals(str(self._final), "JSON")

    def add(self, rows: list[Row], first: int) -> None:
        """One line per row; bytes, times, decimals and NaN have no place in JSON."""
        for number, row in enumerate(rows, start=first):
            for field, value in row.items():
                self._refusals.demand(number, field, json_flaw(value))
            self._file.write(json_text(row) + b"\n")

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self._plain.unlink(missing_ok=True)

    def finish(self) -> Iterable[tuple[Path, Path]]:
        """Frame the lines."""
        self._file.close()
        staged = self._final.with_name(f".{self._final.name}.part")
        _rust.reframe(self._plain, staged, shard=str(self._final), packing="plain", progress=lambda *_: None)
        self._plain.unlink()
        return [(staged, self._final)]
