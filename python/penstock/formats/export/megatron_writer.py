"""Megatron .bin and .idx: one sequence per row, from one field of whole numbers; documents as rows say, else one per row."""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.formats.contract import FieldKind, Row
from penstock.formats.export.value_limits import Refusals, word_for

_MAGIC = b"MMIDIDX\x00\x00"
#: Megatron's codes of element types.
_MODE_MAX = 255
_CODES = {"u1": 1, "i1": 2, "i2": 3, "i4": 4, "i8": 5, "f8": 6, "f4": 7, "u2": 8}


class MegatronWriter:
    """The element type is that of the first row: u16 stays u16, lists of numbers become int32."""

    format = "megatron"

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None:
        names = [field.name for field in schema]
        if len(names) != 1 and not ("tokens" in names and set(names) <= {"tokens", "document", "mode"}):
            hint = 'choose what is written: --fields tokens, or fields=["tokens"]'
            raise UsageError(
                f"bin-idx holds one field of tokens, but rows have {', '.join(names)}", hint=hint
            )
        self._field = "tokens" if "tokens" in names else names[0]
        self._finals = [folder / f"{name}.{suffix}" for suffix in ("bin", "idx")]
        self._staged = [folder / f".{name}.{suffix}.part" for suffix in ("bin", "idx")]
        self._file = self._staged[0].open("wb")
        self._dtype: np.dtype[np.integer[Any]] | None = None
        self._sizes: list[int] = []
        #: First sequence of each document, and modes where rows have them.
        self._documents: list[int] = []
        self._modes: list[int] | None = [] if "mode" in names else None
        self._refusals = Refusals(str(self._finals[0]), "a file of tokens")

    def add(self, rows: list[Row], first: int) -> None:
        """Append sequences."""
        for number, row in enumerate(rows, start=first):
            tokens = _whole_numbers(row.get(self._field))
            if tokens is None:
                what = f"{word_for(row.get(self._field))} instead of a flat list of whole numbers"
                raise self._refusals.refuse(number, self._field, what)
            self._note_document(row, number)
            self._note_mode(row, number)
            if self._dtype is None:
                self._dtype = (
                    tokens.dtype
                    if tokens.dtype.str[1:] in _CODES and tokens.dtype.itemsize < 8
                    else np.dtype("<i4")
                )
            if tokens.size and (
                tokens.max() > np.iinfo(self._dtype).max or tokens.min() < np.iinfo(self._dtype).min
            ):
                raise self._refusals.refuse(number, self._field, f"a token outside {self._dtype}")
            self._file.write(tokens.astype(self._dtype).tobytes())
            self._sizes.append(len(tokens))

    def _note_document(self, row: Row, number: int) -> None:
        """Documents are counted from 0 in each file, one after another."""
        said = row.get("document", len(self._documents))
        if said == len(self._documents):
            self._documents.append(len(self._sizes))
        elif said != len(self._documents) - 1:
            what = f"document {said!r} after {len(self._documents)} documents of the file"
            raise self._refusals.refuse(number, "document", what)

    def _note_mode(self, row: Row, number: int) -> None:
        if self._modes is not None:
            mode = row.get("mode")
            if not isinstance(mode, int) or not 0 <= mode <= _MODE_MAX:
                raise self._refusals.refuse(number, "mode", word_for(mode))
            self._modes.append(mode)

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
        documents = np.asarray([*self._documents, len(sizes)], dtype=np.int64)
        header = _MAGIC + struct.pack("<QBQQ", 1, _CODES[dtype.str[1:]], len(sizes), len(documents))
        modes = bytes(self._modes or ())
        self._staged[1].write_bytes(
            header + sizes.tobytes() + pointers.tobytes() + documents.tobytes() + modes
        )
        return list(zip(self._staged, self._finals, strict=True))


def _whole_numbers(value: Any) -> "np.ndarray[Any, np.dtype[np.integer[Any]]] | None":
    """A flat list of them as an array; an empty list has no type of its own."""
    if isinstance(value, list) and not value:
        return np.zeros(0, np.int32)
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):
        return None
    return array if array.ndim == 1 and array.dtype.kind in "iu" else None
