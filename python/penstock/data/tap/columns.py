"""Packed columns: how arrays travel to a view, from a server or from a training loop. Numbers as they lie in memory, words as JSON.

::

    b"PSV1"   u32 bytes of the header   header, padded to a multiple of 8   buffers

The header is ``{"facts": …, "columns": [{"name", "dtype", "shape", "at", "bytes"}]}``. Everything is little-endian; ``at`` counts
from the beginning of the buffers and is a multiple of 8, and so is the place where the buffers begin.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.errors import UsageError

MAGIC = b"PSV1"
_ALIGN = 8
_BEFORE = len(MAGIC) + 4


def pack(facts: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Facts and columns as bytes."""
    parts: list[bytes] = []
    about: list[dict[str, Any]] = []
    at = 0
    for name, values in columns.items():
        array = np.ascontiguousarray(values)
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        about.append(
            {
                "name": name,
                "dtype": array.dtype.newbyteorder("<").str,
                "shape": list(array.shape),
                "at": at,
                "bytes": len(data),
            }
        )
        padding = -len(data) % _ALIGN
        parts += (data, bytes(padding))
        at += len(data) + padding
    header = msgspec.json.encode({"facts": facts, "columns": about})
    header += b" " * (-(len(header) + _BEFORE) % _ALIGN)
    return b"".join((MAGIC, len(header).to_bytes(4, "little"), header, *parts))


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Facts and columns again."""
    if data[: len(MAGIC)] != MAGIC:
        raise UsageError(f"packed columns must begin with {MAGIC!r}, got {data[:4]!r}")
    length = int.from_bytes(data[len(MAGIC) : _BEFORE], "little")
    begin = _BEFORE + length
    try:
        header = msgspec.json.decode(data[_BEFORE:begin])
        columns = {
            column["name"]: np.frombuffer(
                data[begin + column["at"] : begin + column["at"] + column["bytes"]],
                dtype=np.dtype(column["dtype"]),
            ).reshape(column["shape"])
            for column in header["columns"]
        }
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as reason:
        raise UsageError(f"packed columns are damaged: {reason}") from reason
    return header["facts"], columns
