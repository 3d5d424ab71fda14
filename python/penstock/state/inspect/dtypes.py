"""Bytes of tensors as numbers that numpy can compute with, and back.

numpy knows neither bfloat16 nor the eight-bit floats. Their values are made here from their bits; where ``ml_dtypes`` is
installed, ``array_of`` gives arrays of its types, which keep them as they are.
"""

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from penstock.errors import UsageError

Array = np.ndarray[Any, Any]

#: What numpy calls the types that it knows.
_KNOWN = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
#: What ``ml_dtypes`` calls the others.
_OTHERS = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}
FLOATS = ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F16", "BF16", "F32", "F64")
#: Types that tensors can be cast to. Eight bits are no target: they need scales that only a quantiser knows.
TARGETS = ("F16", "BF16", "F32", "F64")


def numbers_of(memory: memoryview, dtype: str) -> Array:
    """The elements, in a type that numpy computes with. A view where numpy knows the type; nothing is rounded."""
    if dtype in _KNOWN:
        return np.frombuffer(memory, _KNOWN[dtype])
    if dtype == "BF16":
        return (np.frombuffer(memory, np.uint16).astype(np.uint32) << 16).view(np.float32)
    raw = np.frombuffer(memory, np.uint8)
    if dtype == "F8_E5M2":
        # The upper half of a float16.
        return (raw.astype(np.uint16) << 8).view(np.float16)
    return (_e8m0() if dtype == "F8_E8M0" else _e4m3())[raw]


def array_of(memory: memoryview, dtype: str, shape: tuple[int, ...]) -> Array:
    """The elements as an array of the tensor's own type, as far as there is one here; else as ``numbers_of``."""
    own = own_type(dtype)
    return (numbers_of(memory, dtype) if own is None else np.frombuffer(memory, own)).reshape(shape)


@cache
def own_type(dtype: str) -> "np.dtype[Any] | None":
    """The numpy type of a tensor's type, if this machine has one."""
    if dtype in _KNOWN:
        return np.dtype(_KNOWN[dtype])
    try:
        numpy_type: np.dtype[Any] = np.dtype(getattr(import_module("ml_dtypes"), _OTHERS[dtype]))
    except ImportError:
        return None
    return numpy_type


def cast(memory: memoryview, dtype: str, wanted: str) -> memoryview:
    """Floating-point elements in another floating-point type, rounded to the nearest; the bytes."""
    if wanted not in TARGETS:
        raise UsageError(f"dtype {wanted} is not known", hint=f"one of {', '.join(TARGETS)}")
    if dtype == wanted:
        return memory
    numbers = numbers_of(memory, dtype)
    if wanted != "BF16":
        # Beyond the largest number of the narrower type is infinity, as everywhere.
        with np.errstate(over="ignore", invalid="ignore"):
            converted: Array = numbers.astype(_KNOWN[wanted])
    else:
        converted = _bfloat16(numbers)
    return converted.view(np.uint8).data if converted.size else memoryview(b"")


def _bfloat16(numbers: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        bits = numbers.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    # Rounding could carry a NaN over into an infinity; it stays a quiet one instead.
    nan = (bits & np.uint32(0x7FFF_FFFF)) > np.uint32(0x7F80_0000)
    kept: Array = np.where(nan, (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)
    return kept


@cache
def _e8m0() -> Array:
    """The value of every byte: powers of two, and one NaN."""
    return np.append(np.ldexp(1.0, np.arange(255) - 127), np.nan).astype(np.float32)


@cache
def _e4m3() -> Array:
    """The value of every byte: no infinities, and one NaN of each sign."""
    raw = np.arange(256)
    sign = np.where(raw & 0x80, -1.0, 1.0)
    exponent, fraction = (raw >> 3) & 0xF, (raw & 7) / 8
    normal = (1 + fraction) * 2.0 ** (exponent - 7)
    values = sign * np.where(exponent == 0, fraction * 2.0**-6, normal)
    values[(raw & 0x7F) == 0x7F] = np.nan
    return values.astype(np.float32)
