"""The header of a .npy file or member, read without numpy's reader so that nothing in it is ever unpickled."""

import ast
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import FileUnusable
from penstock.formats.arrays.array_rows import from_dtype
from penstock.formats.shard_bytes import ReadsRanges

MAGIC = b"\x93NUMPY"
_LONG = re.compile(r"(\d)L\b")
_HEADER_BYTES_MAX = 64 << 10
_CHUNK_BYTES = 32 << 20
_UNPARSABLE = (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What a header says, and where the values begin."""

    dtype: "np.dtype[Any]"
    shape: tuple[int, ...]
    #: Whether the first axis varies fastest, so that a row is spread over the whole file.
    fortran: bool
    data_at: int

    @property
    def end(self) -> int:
        """The byte after the last value."""
        return self.data_at + self.dtype.itemsize * math.prod(self.shape)


def read_header(file: ReadsRanges, start: int, end: int, label: str) -> NpyHeader:
    """The header at ``start`` of an array that should end at ``end``; everything about it is checked."""
    opening = file.read(start, min(12, end - start))
    if len(opening) < 12 or not opening.startswith(MAGIC):
        raise FileUnusable(path=label, reason=f"expected an npy header at byte {start:,}, found none")
    version = opening[6]
    if version not in (1, 2, 3):
        raise FileUnusable(path=label, reason=f"its npy version is {version}, known are 1 to 3")
    text_at = start + (10 if version == 1 else 12)
    length = struct.unpack("<H", opening[8:10])[0] if version == 1 else struct.unpack("<I", opening[8:12])[0]
    if length > min(_HEADER_BYTES_MAX, end - text_at):
        raise FileUnusable(path=label, reason=f"its npy header would have {length:,} bytes: it is cut off")
    header = _parsed(file.read(text_at, length), text_at + length, version, label)
    if header.end != end:
        reason = f"its array of shape {header.shape} ends at byte {header.end:,}, but should at {end:,}"
        raise FileUnusable(path=label, reason=reason, hint="it is cut off, or holds more than one array")
    return header


def _parsed(text: bytes, data_at: int, version: int, label: str) -> NpyHeader:
    try:
        header = text.decode("utf-8" if version == 3 else "latin-1").strip()
        try:
            said = ast.literal_eval(header)
        except SyntaxError:
            # Python 2 wrote whole numbers of its longer kind as 10L.
            said = ast.literal_eval(_LONG.sub(r"\1", header))
        dtype = np.lib.format.descr_to_dtype(said["descr"])
        shape, fortran = tuple(said["shape"]), said["fortran_order"]
        if not all(type(length) is int and length >= 0 for length in shape) or type(fortran) is not bool:
            raise ValueError(f"shape {shape} or order {fortran}")
    except _UNPARSABLE as reason:
        raise FileUnusable(path=label, reason=f"its npy header cannot be read: {reason}") from reason
    if dtype.hasobject:
        raise FileUnusable(
            path=label,
            reason="it holds Python objects as pickles, and reading a pickle runs what its writer put there",
            hint="save it with a plain dtype (allow_pickle=False shows what is wrong)",
        )
    # One axis has the same order either way.
    return NpyHeader(dtype, shape, fortran and len(shape) > 1, data_at)


def plain_chunks(file: ReadsRanges, header: NpyHeader) -> Iterator[bytes]:
    """The array as a .npy whose rows are contiguous: a header, then values, a few rows at a time."""
    descr = ast.literal_eval(from_dtype(header.dtype))
    text = repr({"descr": descr, "fortran_order": False, "shape": header.shape}).encode()
    # Values begin at a multiple of 64, as numpy has it.
    text += b" " * (-(len(text) + 13) % 64) + b"\n"
    yield MAGIC + bytes([3, 0]) + struct.pack("<I", len(text)) + text
    if header.fortran:
        yield from _rows_together(file, header)
        return
    for at in range(header.data_at, header.end, _CHUNK_BYTES):
        yield file.read(at, min(_CHUNK_BYTES, header.end - at))


def _rows_together(file: ReadsRanges, header: NpyHeader) -> Iterator[bytes]:
    """Values that are stored first axis fastest, row after row: each chunk of rows is a strip of every place in a row."""
    rows, places = header.shape[0], math.prod(header.shape[1:])
    width = header.dtype.itemsize
    step = max(1, _CHUNK_BYTES // max(1, places * width))
    for first in range(0, rows if places else 0, step):
        count = min(step, rows - first)
        strips = [
            np.frombuffer(
                file.read(header.data_at + (place * rows + first) * width, count * width), dtype=header.dtype
            )
            for place in range(places)
        ]
        chunk = np.stack(strips, axis=1).reshape(count, *header.shape[1:], order="F")
        yield np.ascontiguousarray(chunk).tobytes()
