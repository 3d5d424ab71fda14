"""Tensors in a .safetensors file: rows of the first axis of all of them, ``{name: array}``."""

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.errors import FileUnusable
from penstock.formats.arrays.array_rows import ArrayRows, Column, open_columns, scan_columns
from penstock.formats.contract import OpenShard, Policy, Progress, RawFile, Scanned

#: What the library itself allows.
_HEADER_BYTES_MAX = 100_000_000
#: Name of a dtype -> numpy's, and what it means where numpy has no such dtype.
_DTYPES = {
    "BOOL": ("'|b1'", ""),
    "U8": ("'|u1'", ""),
    "I8": ("'|i1'", ""),
    "U16": ("'<u2'", ""),
    "I16": ("'<i2'", ""),
    "U32": ("'<u4'", ""),
    "I32": ("'<i4'", ""),
    "U64": ("'<u8'", ""),
    "I64": ("'<i8'", ""),
    "F16": ("'<f2'", ""),
    "F32": ("'<f4'", ""),
    "F64": ("'<f8'", ""),
    "C64": ("'<c8'", ""),
    "BF16": ("'<u2'", "bfloat16"),
    "F8_E4M3": ("'|u1'", "float8_e4m3fn"),
    "F8_E5M2": ("'|u1'", "float8_e5m2"),
    "F8_E8M0": ("'|u1'", "float8_e8m0fnu"),
}


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class Safetensors:
    """The format ``safetensors``: one row per item of the first axis of all tensors."""

    name = "safetensors"
    suffixes: Sequence[str] = (".safetensors",)

    def recognise(self, raw: RawFile, head: bytes) -> bool:
        """The length of a JSON object that fits the file, and its beginning."""
        if len(head) < 10 or head[8:9] != b"{":
            return False
        length = struct.unpack("<Q", head[:8])[0]
        if length > min(_HEADER_BYTES_MAX, raw.size_bytes - 8):
            return False
        return b'"data_offsets"' in head[8 : 8 + length] or head[8:23] == b'{"__metadata__"'

    def shards(self, raws: list[RawFile]) -> list[RawFile]:
        """Every file is one, but for the list of weights that models have beside theirs."""
        return [raw for raw in raws if not raw.name.endswith(".safetensors.index.json")]

    def scan(self, raw: RawFile, policy: Policy, folder: Path, progress: Progress) -> Scanned:
        """The header is held against the size of the file; values are only summed."""
        columns = _columns(raw)
        return scan_columns("safetensors", raw, columns, policy, folder / "index.arrow", progress)

    def open(self, shard: OpenShard) -> ArrayRows:
        """Rows are found by arithmetic."""
        return open_columns(shard)


def _columns(raw: RawFile) -> list[Column]:
    data_at, tensors = _header(raw)
    columns = []
    at = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        if tensor.dtype not in _DTYPES:
            reason = f"{name!r} has dtype {tensor.dtype}, known are {', '.join(_DTYPES)}"
            raise FileUnusable(path=raw.url, reason=reason)
        if any(length < 0 for length in tensor.shape):
            raise FileUnusable(path=raw.url, reason=f"{name!r} has the shape {tensor.shape}")
        dtype, meaning = _DTYPES[tensor.dtype]
        start, end = tensor.data_offsets
        column = Column(name, dtype, tuple(tensor.shape), data_at + start, meaning)
        if start != at or end - start != column.size_bytes:
            values = math.prod(tensor.shape)
            reason = (
                f"{name!r} stands at bytes {start:,} to {end:,}, expected were {values:,} values from {at:,}"
            )
            raise FileUnusable(path=raw.url, reason=reason)
        at = end
        columns.append(column)
    if data_at + at != raw.size_bytes:
        reason = f"its tensors end at byte {data_at + at:,}, the file at {raw.size_bytes:,}"
        raise FileUnusable(path=raw.url, reason=reason, hint="it is cut off, or was written to after its end")
    return columns


def _header(raw: RawFile) -> tuple[int, dict[str, _Tensor]]:
    """Where the values begin, and the tensors."""
    opening = raw.read(0, 8)
    length = struct.unpack("<Q", opening)[0] if len(opening) == 8 else 0
    if not 2 <= length <= min(_HEADER_BYTES_MAX, raw.size_bytes - 8):
        reason = f"its header would have {length:,} bytes: it is cut off, or no safetensors file"
        raise FileUnusable(path=raw.url, reason=reason)
    try:
        entries = msgspec.json.decode(raw.read(8, length), type=dict[str, msgspec.Raw])
        entries.pop("__metadata__", None)
        tensors = {name: msgspec.json.decode(entry, type=_Tensor) for name, entry in entries.items()}
    except msgspec.MsgspecError as reason:
        raise FileUnusable(path=raw.url, reason=f"its header cannot be read: {reason}") from reason
    return 8 + length, tensors
