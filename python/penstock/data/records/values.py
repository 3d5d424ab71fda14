"""Values of records: what a row may hold, and the bytes that stand for it in a digest.

The bytes depend on the value alone: fields go by name, arrays by type, shape and content, numbers by what they are. So a row has
one digest, whoever decoded it and in whatever order its fields came. Rust walks the values of the common types; what it does
not know by type comes here.
"""

import datetime
import decimal
import struct
import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from penstock import _rust

#: What stays as it is. The last ones are written as text in a digest; each has exactly one.
_PLAIN = (
    *(bool, int, float, str, bytes, np.generic),
    *(datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID, complex),
)
#: Those of them that most values are, to be told by their type alone.
_COMMON = frozenset((bool, int, float, str, bytes))
#: Arrays of more bytes are hashed where they are; copying smaller ones costs less than asking for a view.
_COPIED_BYTES_MAX = 1 << 16
#: Deeper values are taken for values that hold themselves.
_DEPTH_MAX = 100


class ValueUnusable(Exception):
    """A value that no record can hold; becomes the reason why its sample cannot be used."""


def usable(value: Any, depth: int = 0) -> Any:
    """The value as records hold it: arrays of other libraries as numpy arrays, sequences as lists, byte views as bytes."""
    if value is None or type(value) in _COMMON or isinstance(value, _PLAIN):
        return value
    if depth > _DEPTH_MAX:
        raise ValueUnusable(f"values are nested deeper than {_DEPTH_MAX} levels")
    if isinstance(value, np.ndarray):
        return usable(value.tolist(), depth + 1) if value.dtype.hasobject else value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, list | tuple):
        return [usable(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {_key(name): usable(item, depth + 1) for name, item in value.items()}
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return usable(np.asarray(value), depth + 1)
    raise ValueUnusable(
        f"values of a record must be numbers, text, bytes, arrays, lists or dicts, got {type(value).__name__}"
    )


def usable_row(row: Any, *, fresh: bool = False) -> dict[str, Any]:
    """A row with usable values. A ``fresh`` one belongs to nobody else, so its lists and dicts need not be copied."""
    if (converted := _rust.usable_row(row, fresh, usable)) is not None:
        return converted
    if not isinstance(row, Mapping):
        raise ValueUnusable(f"a row is a dict of fields, not {type(row).__name__}")
    if "valid" in row:
        raise ValueUnusable("it has a field 'valid', which batches have themselves: rename it with a Map")
    return {_key(name): usable(value) for name, value in row.items()}


def digest_of(position: int, rows: list[dict[str, Any] | bytes]) -> tuple[int, int]:
    """The sum of the digests of rows of usable values (or of bytes that stand for one), and the bytes of all values."""
    return _rust.digest_records(position, rows, encoded)


def encoded(value: Any) -> list[Any]:
    """The parts of the bytes that stand for a usable value."""
    parts: list[Any] = []
    _encode(value, parts)
    return parts


def encode(row: Mapping[str, Any]) -> bytes:
    """The bytes that stand for a row of usable values: what the digest of Rust's walk is held against."""
    return b"".join(encoded(row))


def _key(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueUnusable(f"names of fields must be text, got {name!r:.50}")
    return name


def _encode(value: Any, parts: list[Any]) -> None:
    # Every value begins with a letter for its kind and says how long it is, so that no two values have the same bytes.
    if value is None:
        parts.append(b"n")
    # Before floats: numpy's float64 is a float of Python too, and is an array here, as those of other widths are.
    elif isinstance(value, np.ndarray | np.generic):
        _encode_array(value, parts)
    elif isinstance(value, str):
        _encode_bytes(b"s", value.encode("utf-8", "surrogatepass"), parts)
    elif isinstance(value, bytes):
        _encode_bytes(b"b", value, parts)
    elif isinstance(value, bool):
        parts.append(b"t" if value else b"f")
    elif isinstance(value, int):
        _encode_bytes(b"i", b"%d" % value, parts)
    elif isinstance(value, float):
        parts.append(b"d" + struct.pack("<d", value))
    elif isinstance(value, list):
        parts.append(b"l%d:" % len(value))
        for item in value:
            _encode(item, parts)
    elif isinstance(value, Mapping):
        parts.append(b"m%d:" % len(value))
        for name in sorted(value):
            parts.append(_name(name))
            _encode(value[name], parts)
    else:
        _encode_bytes(b"w", f"{type(value).__name__} {value}".encode(), parts)


@lru_cache(maxsize=4096)
def _name(name: str) -> bytes:
    """The bytes of a field's name, which every row has again."""
    parts: list[bytes] = []
    _encode(name, parts)
    return b"".join(parts)


def _encode_bytes(kind: bytes, data: bytes, parts: list[Any]) -> None:
    parts.append(kind + b"%d:" % len(data))
    parts.append(data)


def _encode_array(array: Any, parts: list[Any]) -> None:
    parts.append(_array_kind(array.dtype, array.shape))
    if array.nbytes <= _COPIED_BYTES_MAX:
        parts.append(array.tobytes())
    else:
        parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@lru_cache(maxsize=4096)
def _array_kind(dtype: "np.dtype[Any]", shape: tuple[int, ...]) -> bytes:
    """The bytes of an array's type and shape. Types that numpy borrows (bfloat16) have a name of their own and the letter of raw bytes."""
    parts: list[bytes] = []
    _encode_bytes(b"a", f"{dtype.str} {dtype} {shape}".encode(), parts)
    return b"".join(parts)
