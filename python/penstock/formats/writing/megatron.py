"""Megatron .bin and .idx: one sequence and one document per row, from one field of whole numbers."""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import FileUnusable, UsageError
from penstock.formats.contract import FieldKind, Row

_MAGIC = b"MMIDIDX\x00\x00"
#: Megatron's codes of element types.
_CODES = {"u1": 1, "i1": 2, "i2": 3, "i4": 4, "i8": 5, "f8": 6, "f4": 7, "u2": 8}


class MegatronWriter:
    """The element type is that of the first row: u16 stays u16, lists of numbers become int32."""

    format = "megatron"

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None:
        names = [field.name for field in schema]
        if "tokens" not in names and len(names) != 1:
            raise UsageError(f"bin-idx holds one field of tokens, but rows have {', '.join(names)}")
        self._field = "tokens" if "tokens" in names else names[0]
        self._finals = [folder / f"{name}.{suffix}" for suffix in ("bin", "idx")]
        self._staged = [folder / f".{name}.{suffix}.part" for suffix in ("bin", "idx")]
        self._file = self._staged[0].open("wb")
        self._dtype: np.dtype[np.integer[Any]] | None = None
        self._sizes: list[int] = []

    def add(self, rows: list[Row], first: int) -> None:
        """Append sequences."""
        for number, row in enumerate(rows, start=first):
            tokens = np.asarray(row[self._field])
            if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
                reason = f"row {number} has no flat list of whole numbers in field {self._field!r}"
                raise FileUnusable(path=str(self._finals[0]), reason=reason)
            if self._dtype is None:
                self._dtype = (
                    tokens.dtype
                    if tokens.dtype.str[1:] in _CODES and tokens.dtype.itemsize < 8
                    else np.dtype("<i4")
                )
            if tokens.size and (
                tokens.max() > np.iinfo(self._dtype).max or tokens.min() < np.iinfo(self._dtype).min
            ):
                reason = f"row {number} has a token that {self._dtype} cannot hold"
                raise FileUnusable(path=str(self._finals[0]), reason=reason)
            self._file.write(tokens.astype(self._dtype).tobytes())
            self._sizes.append(len(tokens))

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        for staged in self._staged:
            staged.unlink(missing_ok=True)

    def finish(self) -> Iterable[tuple[Path, Path]]:
        """Write the .idx."""
        self._file.close()
        dtype = self._dtype or np.dtype("<i4")
        sizes = np.asarray(self._sizes, dtype=np.int32)
        pointers = np.zeros(len(sizes), dtype=np.int64)
        np.cumsum(sizes[:-1].astype(np.int64) * dtype.itemsize, out=pointers[1:])
        documents = np.arange(len(sizes) + 1, dtype=np.int64)
        header = _MAGIC + struct.pack("<QBQQ", 1, _CODES[dtype.str[1:]], len(sizes), len(documents))
        self._staged[1].write_bytes(header + sizes.tobytes() + pointers.tobytes() + documents.tobytes())
        return list(zip(self._staged, self._finals, strict=True))
