"""Many records of one shape at once: bytes that are the same in all of them, and slots that numpy fills column by column.

A million steps as messages, one by one in Python, would take minutes. Every slot has a width of its own, so a record's length is known before its values.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64] | npt.NDArray[np.float64] | npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a value goes: the bytes of the number itself, a varint or decimal digits of exactly ``width`` bytes."""

    kind: Literal["bytes", "varint", "digits"]
    width: int = 8


#: Eight bytes of an integer or a floating-point number, and four of a short one.
WORD, HALF = Slot("bytes", 8), Slot("bytes", 4)
#: Any moment from 1973 to 2262, in nanoseconds since 1970.
MOMENT = Slot("varint", 9)


class RecordTemplate:
    """Pieces in order: bytes, or slots."""

    def __init__(self, *pieces: bytes | Slot) -> None:
        self._pieces = pieces
        self.length = sum(len(piece) if isinstance(piece, bytes) else piece.width for piece in pieces)

    def fill(self, count: int, *columns: Column) -> Bytes:
        """A row of bytes for each record; a column for each slot."""
        rows = np.empty((count, self.length), np.uint8)
        values = iter(columns)
        place = 0
        for piece in self._pieces:
            if isinstance(piece, bytes):
                rows[:, place : place + len(piece)] = np.frombuffer(piece, np.uint8)
                place += len(piece)
            else:
                rows[:, place : place + piece.width] = _filled(piece, next(values))
                place += piece.width
        return rows


def _filled(slot: Slot, column: Column) -> Bytes:
    if slot.kind == "bytes":
        return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), slot.width)
    if slot.kind == "varint":
        shifts = np.arange(slot.width, dtype=np.uint64) * np.uint64(7)
        parts = (column.astype(np.uint64)[:, None] >> shifts) & np.uint64(0x7F)
        parts[:, :-1] |= np.uint64(0x80)
        return parts.astype(np.uint8)
    powers = 10 ** np.arange(slot.width - 1, -1, -1, dtype=np.int64)
    return (column.astype(np.int64)[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def varint_widths(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many bytes a varint of each number takes; none is negative."""
    widths = np.ones(len(numbers), np.int64)
    for bits in range(7, 64, 7):
        widths += numbers >= (1 << bits)
    return widths


def digit_widths(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many decimal digits each number has; none is negative."""
    widths = np.ones(len(numbers), np.int64)
    for digits in range(1, 19):
        widths += numbers >= 10**digits
    return widths
