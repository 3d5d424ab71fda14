"""Columns as bytes: what Python made of a step, for another process, and back without a changed bit.

Eight bytes of magic, the version, the length and the hash of a head (msgpack: facts, and name, type, shape and place of
every column), then the columns, each at a multiple of 64 bytes. Arrays are looked at where they lie; everything else (text,
lists, dates) travels inside the head. A value that would not come back exactly as it was is refused, so that whoever wanted to
send it knows; bytes that nobody packed are refused too.
"""

import datetime
import decimal
import struct
import uuid
import zoneinfo
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from penstock._rust import quick_hash
from penstock.errors import BatchDamaged

MAGIC, VERSION = b"PENCOLUM", 1
#: Magic, version, zeros, bytes of the head, xxh3 of the head, bytes of everything.
_PREFIX = struct.Struct("<8sIIQQQ")
_ALIGNMENT = 64
#: What a value is that msgpack does not know: an array, a scalar of numpy, and so on.
_ARRAY, _SCALAR, _INTEGER, _TEXT, _WRITTEN = 1, 2, 3, 4, 5
#: Whole numbers that msgpack holds.
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


class NotPackable(Exception):
    """A value that bytes cannot stand for exactly; whoever needs it elsewhere has to make it there."""


def pack(columns: Mapping[str, Any], facts: Mapping[str, Any]) -> bytes:
    """Columns (numpy arrays, or values of records) and facts (plain values) as bytes."""
    described: list[Any] = []
    arrays: list[tuple[int, memoryview]] = []
    at = 0
    for name, value in columns.items():
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            raw = _raw(value)
            described.append([name, _dtype_name(value.dtype), list(value.shape), at])
            arrays.append((at, raw))
            at += _aligned(raw.nbytes)
        else:
            described.append([name, None, _packable(value), 0])
    head = msgspec.msgpack.encode([described, _packable(dict(facts)), at])
    begin = _aligned(_PREFIX.size + len(head))
    packed = bytearray(begin + at)
    _PREFIX.pack_into(packed, 0, MAGIC, VERSION, 0, len(head), quick_hash(head), len(packed))
    packed[_PREFIX.size : _PREFIX.size + len(head)] = head
    for place, raw in arrays:
        packed[begin + place : begin + place + raw.nbytes] = raw
    return bytes(packed)


def unpack(packed: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns and facts; arrays are views of what was given, and cannot be written to."""
    view = memoryview(packed).toreadonly().cast("B")
    head, begin = _head(view)
    try:
        described, facts, size = msgspec.msgpack.decode(head, ext_hook=_untold)
        if begin + size != len(view):
            raise BatchDamaged(reason=f"it has {len(view)} bytes instead of {begin + size}")
        columns = {
            name: value if kind is None else _array(view[begin:], kind, value, at)
            for name, kind, value, at in described
        }
        return columns, dict(facts)
    except BatchDamaged:
        raise
    except Exception as problem:
        raise BatchDamaged(reason=f"its columns cannot be read: {problem}") from problem


def _head(view: memoryview) -> tuple[bytes, int]:
    if len(view) < _PREFIX.size:
        raise BatchDamaged(reason=f"it has {len(view)} bytes, fewer than its header")
    magic, version, _, length, hashed, size = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise BatchDamaged(reason="it does not begin as columns do")
    if version != VERSION:
        raise BatchDamaged(reason=f"it is written in layout {version}, but layout {VERSION} is known")
    if size != len(view) or length > len(view) - _PREFIX.size:
        raise BatchDamaged(reason=f"it has {len(view)} bytes instead of {size}")
    head = bytes(view[_PREFIX.size : _PREFIX.size + length])
    if quick_hash(head) != hashed:
        raise BatchDamaged(reason="its head is damaged")
    return head, _aligned(_PREFIX.size + length)


def _array(body: memoryview, kind: str, shape: list[int], at: int) -> "np.ndarray[Any, Any]":
    dtype = _dtype(kind)
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if at < 0 or min(shape, default=0) < 0 or at + count * dtype.itemsize > len(body):
        raise BatchDamaged(reason=f"an array of {shape} {kind} does not fit into {len(body)} bytes")
    return np.frombuffer(body, dtype, count, at).reshape(shape) if dtype.itemsize else np.zeros(shape, dtype)


def _raw(array: "np.ndarray[Any, Any]") -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _dtype_name(dtype: "np.dtype[Any]") -> str:
    """The name under which a type is found again."""
    for name in (dtype.str, str(dtype)):
        try:
            if _dtype(name) == dtype:
                return name
        except TypeError:
            continue
    raise NotPackable(f"arrays of {dtype} cannot be sent")


def _dtype(name: str) -> "np.dtype[Any]":
    return np.dtype(name)


def _packable(value: Any) -> Any:
    """A value as msgpack holds it; what it does not know becomes an extension."""
    kind = type(value)
    if value is None or kind in (bool, float, bytes):
        return value
    if kind is int:
        return value if _INT_MIN <= value <= _INT_MAX else _ext(_INTEGER, b"%d" % value)
    if kind is str:
        return (
            value
            if value.isascii() or _is_clean(value)
            else _ext(_TEXT, value.encode("utf-8", "surrogatepass"))
        )
    if kind in (list, tuple):
        return [_packable(item) for item in value]
    if isinstance(value, Mapping):
        return {_packable(name): _packable(item) for name, item in value.items()}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _ext(
            _ARRAY, msgspec.msgpack.encode([_dtype_name(value.dtype), list(value.shape), bytes(_raw(value))])
        )
    if isinstance(value, np.generic):
        array = np.asarray(value)
        return _ext(_SCALAR, msgspec.msgpack.encode([_dtype_name(array.dtype), [], array.tobytes()]))
    return _ext(_WRITTEN, msgspec.msgpack.encode(_written(value)))


def _untold(code: int, data: memoryview) -> Any:
    if code == _INTEGER:
        return int(bytes(data))
    if code == _TEXT:
        return bytes(data).decode("utf-8", "surrogatepass")
    if code == _WRITTEN:
        return _rewritten(*msgspec.msgpack.decode(data))
    if code not in (_ARRAY, _SCALAR):
        raise BatchDamaged(reason=f"nothing is known of values of kind {code}")
    kind, shape, raw = msgspec.msgpack.decode(data)
    array = _array(memoryview(raw), kind, shape, 0)
    return array if code == _ARRAY else array[()]


def _ext(code: int, data: bytes) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, data)


def _is_clean(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _written(value: Any) -> list[Any]:
    """A value of the kinds that have one text each."""
    kind = type(value)
    written: list[Any] = [kind.__name__, str(value)]
    if kind is complex:
        written = ["complex", struct.pack("<dd", value.real, value.imag)]
    elif kind is datetime.timedelta:
        written = ["timedelta", [value.days, value.seconds, value.microseconds]]
    elif kind in (datetime.date, datetime.datetime, datetime.time):
        zone = getattr(value, "tzinfo", None)
        key = zone.key if isinstance(zone, zoneinfo.ZoneInfo) else None
        bare = value.replace(tzinfo=None) if key else value
        written = [kind.__name__, [bare.isoformat(), key, getattr(value, "fold", 0)]]
    elif kind not in (decimal.Decimal, uuid.UUID):
        raise NotPackable(f"a value of {kind.__module__}.{kind.__qualname__} cannot be sent")
    back = _rewritten(*written)
    if repr(back) != repr(value):
        raise NotPackable(f"{value!r:.50} cannot be sent")
    return written


def _rewritten(kind: str, written: Any) -> Any:
    if kind == "complex":
        return complex(*struct.unpack("<dd", written))
    if kind == "timedelta":
        return datetime.timedelta(*written)
    if kind == "Decimal":
        return decimal.Decimal(written)
    if kind == "UUID":
        return uuid.UUID(written)
    text, key, fold = written
    if kind == "date":
        return datetime.date.fromisoformat(text)
    if kind not in ("datetime", "time"):
        raise BatchDamaged(reason=f"nothing is known of values of kind {kind!r:.50}")
    bare = (datetime.datetime if kind == "datetime" else datetime.time).fromisoformat(text)
    return bare.replace(fold=fold, tzinfo=zoneinfo.ZoneInfo(key)) if key else bare.replace(fold=fold)


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT
