"""The columns of MDS samples, as mosaicml-streaming encodes them.

A sample begins with the sizes (u32) of its columns of varying size; then come the columns. Images stay as they are
stored: decoding pictures belongs to the stage that knows what size and mode the model wants. Pickles are refused,
because reading one runs whatever its writer put there.
"""

import itertools
import json
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from penstock.formats.contract import Row

Decode = Callable[[memoryview], Any]

#: MDS's codes of element types.
VALUE_CODES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
_NUMBERS = set(VALUE_CODES.values())
#: Encodings whose values are bytes, and those that are lists of them, with what stands before their count.
_BYTES = {"bytes", "jpeg", "png", "pil"}
_LISTS = {"jpeg_array": 0, "jpegarray": 0, "list[jpeg]": 4, "list[png]": 4, "list[pil]": 4}
_UNDECODABLE = (ValueError, ArithmeticError, LookupError, RecursionError, struct.error)


class ColumnsUnusable(ValueError):
    """Columns that cannot be read."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        self.hint = hint
        super().__init__(reason)


class Columns:
    """The columns of one shard, ready to decode samples."""

    def __init__(self, names: list[str], encodings: list[str]) -> None:
        if len(set(names)) != len(names) or not names:
            raise ColumnsUnusable("there are none" if not names else "two have the same name")
        self.names = names
        self.encodings = encodings
        decoders = [_column(name, encoding) for name, encoding in zip(names, encodings, strict=True)]
        #: Bytes of each column, None where they vary.
        self.sizes: list[int | None] = [size for size, _ in decoders]
        self._columns = [(name, size, decode) for name, (size, decode) in zip(names, decoders, strict=True)]
        self._head = struct.Struct(f"<{self.sizes.count(None)}I")
        self._fixed = self._head.size + sum(size for size in self.sizes if size is not None)

    def kinds(self) -> list[tuple[str, str]]:
        """Name and kind of each field."""
        return [(name, _kind(encoding)) for name, encoding in zip(self.names, self.encodings, strict=True)]

    def promises(self) -> list[tuple[str, int | None]]:
        """Encoding and size of each column, for the check of samples while their bytes are summed.

        Sizes that no sample can have (of a shape with a negative axis) become 0, which leaves every sample to ``problem``.
        """
        return [
            (encoding, size if size is None or 0 <= size < 1 << 32 else 0)
            for encoding, size in zip(self.encodings, self.sizes, strict=True)
        ]

    def decode(self, sample: memoryview) -> Row:
        """One sample as a row."""
        sizes = self._head.unpack_from(sample)
        if self._fixed + sum(sizes) != len(sample):
            raise ValueError(f"its columns have {self._fixed + sum(sizes)} bytes, the sample {len(sample)}")
        row = {}
        at = self._head.size
        varying = iter(sizes)
        for name, size, decode in self._columns:
            end = at + (next(varying) if size is None else size)
            row[name] = decode(sample[at:end])
            at = end
        return row

    def problem(self, sample: memoryview) -> str | None:
        """Why a sample cannot be decoded, if it cannot."""
        try:
            self.decode(sample)
        except _UNDECODABLE as reason:
            return f"the sample cannot be decoded: {reason}"
        return None


def _kind(encoding: str) -> str:
    base = encoding.partition(":")[0]
    if base in _NUMBERS:
        return "float" if base.startswith("float") else "int"
    named = {"str": "string", "int": "int", "str_int": "int", "str_float": "float", "str_decimal": "string"}
    if base in _BYTES:
        return "bytes"
    if base in _LISTS:
        return "list"
    # A column of JSON may hold anything.
    return "array" if base == "ndarray" else named.get(base, "mixed")


def _column(name: str, encoding: str) -> tuple[int | None, Decode]:
    """Size, where it is fixed, and decoder of a column."""
    base, _, arguments = encoding.partition(":")
    if base == "pkl":
        raise ColumnsUnusable(
            f"{name!r} holds pickles, and reading a pickle runs what its writer put there",
            "write the column as json, ndarray or bytes",
        )
    if base == "ndarray":
        return _array_column(name, arguments)
    if base in _NUMBERS:
        dtype = np.dtype(base).newbyteorder("<")
        return dtype.itemsize, lambda data: np.frombuffer(data, dtype)[0]
    if base in _LISTS:
        skipped = _LISTS[base]
        return None, lambda data: _list_of_bytes(data[skipped:])
    if base not in _DECODERS:
        raise ColumnsUnusable(f"{name!r} has the encoding {encoding!r}, which is not known")
    return (8 if base == "int" else None), _DECODERS[base]


_DECODERS: dict[str, Decode] = {
    **dict.fromkeys(_BYTES, bytes),
    "str": lambda data: str(data, "utf-8"),
    "int": lambda data: int.from_bytes(data, "little", signed=True),
    "str_int": lambda data: int(str(data, "utf-8")),
    "str_float": lambda data: float(str(data, "utf-8")),
    "str_decimal": lambda data: Decimal(str(data, "utf-8")),
    "json": lambda data: json.loads(str(data, "utf-8")),
}


def _array_column(name: str, arguments: str) -> tuple[int | None, Decode]:
    """``ndarray``, ``ndarray:dtype`` or ``ndarray:dtype:shape``; what the name leaves out stands in each sample."""
    dtype_name, _, shape_text = arguments.partition(":")
    if dtype_name and dtype_name not in _NUMBERS:
        raise ColumnsUnusable(f"{name!r} is an array of {dtype_name!r}, which is not known")
    try:
        shape = tuple(int(part) for part in shape_text.split(",")) if shape_text else None
    except ValueError as reason:
        raise ColumnsUnusable(f"{name!r} is an array of shape {shape_text!r}") from reason
    fixed = np.dtype(dtype_name).newbyteorder("<") if dtype_name else None

    def decode(data: memoryview) -> Any:
        at = 0
        dtype, own_shape = fixed, shape
        if dtype is None:
            dtype = np.dtype(VALUE_CODES[data[0]]).newbyteorder("<")
            at = 1
        if own_shape is None:
            axes, width = data[at] >> 2, 1 << (data[at] & 3)
            own_shape = tuple(np.frombuffer(data[at + 1 :], f"<u{width}", axes).tolist())
            at += 1 + axes * width
        # Copied: rows are the caller's to change, and do not keep the whole batch alive.
        return np.frombuffer(data[at:], dtype).reshape(own_shape).copy()

    size = None if fixed is None or shape is None else fixed.itemsize * int(np.prod(shape))
    return size, decode


def _list_of_bytes(data: memoryview) -> list[bytes]:
    """A count, the sizes, and the items."""
    count = struct.unpack_from("<I", data)[0]
    sizes = np.frombuffer(data[4:], "<u4", count).tolist()
    ends = np.cumsum([4 + 4 * count, *sizes]).tolist()
    if ends[-1] != len(data):
        raise ValueError(f"a list of {count} items has {ends[-1]} bytes, its column {len(data)}")
    return [bytes(data[start:end]) for start, end in itertools.pairwise(ends)]
