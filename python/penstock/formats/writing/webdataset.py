"""WebDataset archives: one group of members per row, named by a running key."""

import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock.formats.contract import FieldKind, Row

_KEY = "__key__"


class WebDatasetWriter:
    """Rows that came from an archive keep their keys and members; others become one ``json`` or one member per field."""

    format = "webdataset"

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None:
        self._final = folder / f"{name}.tar"
        self._staged = folder / f".{name}.tar.part"
        self._tar = tarfile.open(self._staged, "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed by finish

    def add(self, rows: list[Row], first: int) -> None:
        """One group of members per row."""
        for number, row in enumerate(rows, start=first):
            key = str(row.get(_KEY, f"{number:012d}"))
            for name, data in _members(row):
                member = tarfile.TarInfo(f"{key}.{name}")
                member.size = len(data)
                self._tar.addfile(member, io.BytesIO(data))

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._tar.close()
        self._staged.unlink(missing_ok=True)

    def finish(self) -> Iterable[tuple[Path, Path]]:
        """Write the end of the archive."""
        self._tar.close()
        return [(self._staged, self._final)]


def _members(row: Row) -> list[tuple[str, bytes]]:
    fields = {name: value for name, value in row.items() if name != _KEY}
    if _KEY not in row and not any(
        isinstance(value, bytes | memoryview | np.ndarray) for value in fields.values()
    ):
        return [("json", msgspec.json.encode(fields))]
    return [(name, _encode(name, value)) for name, value in fields.items()]


def _encode(name: str, value: Any) -> bytes:
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    if isinstance(value, np.ndarray):
        buffer = io.BytesIO()
        np.save(buffer, value, allow_pickle=False)
        return buffer.getvalue()
    extension = name.rpartition(".")[2]
    if isinstance(value, str) and extension != "json":
        return value.encode()
    return str(value).encode() if extension in ("cls", "cls2", "index") else msgspec.json.encode(value)
