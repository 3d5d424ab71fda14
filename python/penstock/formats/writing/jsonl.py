"""JSON lines in small zstd frames, so that the export can be read at random in place."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock import _rust
from penstock.errors import FileUnusable
from penstock.formats.contract import FieldKind, Row


class JsonlWriter:
    """Collects plain lines in a temporary file and frames them at the end."""

    format = "jsonl"

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None:
        self._final = folder / f"{name}.jsonl.zst"
        self._plain = folder / f".{name}.jsonl.part"
        self._file = self._plain.open("wb")

    def add(self, rows: list[Row], first: int) -> None:
        """One line per row; bytes have no place in JSON."""
        for number, row in enumerate(rows, start=first):
            for field, value in row.items():
                if isinstance(value, bytes | memoryview):
                    reason = f"row {number} has bytes in field {field!r}, which JSON cannot hold"
                    raise FileUnusable(
                        path=str(self._final), reason=reason, hint="export to parquet, mds or webdataset"
                    )
            self._file.write(msgspec.json.encode(row, enc_hook=_plain) + b"\n")

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


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in JSON")
