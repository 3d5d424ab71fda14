"""MosaicML's MDS shards: a table of offsets, the columns as JSON, and samples of joined fields.

MDS has no null. A column that may lack a value is kept as JSON, where null is a value; bytes and arrays have no place in
JSON, so among them a null is refused.
"""

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock.errors import FileUnusable
from penstock.formats.contract import FieldKind, Row
from penstock.formats.export.value_limits import Refusals, json_flaw, json_text, word_for
from penstock.formats.samples.mds_columns import VALUE_CODES

#: Kind of a field -> encoding of its column; whatever else is there is kept as JSON.
_ENCODINGS = {
    "string": "str",
    "int": "int",
    "float": "float64",
    "decimal": "str_decimal",
    "bytes": "bytes",
    "array": "ndarray",
}
#: Kinds that JSON has no place for, so that their columns stay what they are even where values may be missing.
_NEVER_JSON = ("bytes", "array", "decimal")
_SIZES = {"int": 8, "float64": 8}
_LONG_MAX = (1 << 63) - 1


class MdsWriter:
    """Columns in the order of their names, as MDS wants them. Offsets are 32 bits wide, so a shard stays under 4 GiB."""

    format = "mds"

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None:
        self._final = folder / f"{name}.mds"
        self._staged = folder / f".{name}.mds.part"
        kinds = {
            field.name: "json"
            if field.optional and field.kind not in _NEVER_JSON
            else _ENCODINGS.get(field.kind, "json")
            for field in schema
        }
        self._columns = sorted(kinds)
        self._encodings = [kinds[name] for name in self._columns]
        self._samples: list[bytes] = []
        self._refusals = Refusals(str(self._final), "MDS")

    def add(self, rows: list[Row], first: int) -> None:
        """Encode samples."""
        if not self._samples and rows:
            self._encodings = [
                # Decimals that were read as text from MDS itself are called strings.
                "str_decimal" if encoding == "str" and isinstance(rows[0].get(name), Decimal) else encoding
                for name, encoding in zip(self._columns, self._encodings, strict=True)
            ]
        for number, row in enumerate(rows, start=first):
            parts = []
            for name, encoding in zip(self._columns, self._encodings, strict=True):
                value = row.get(name)
                self._refusals.demand(number, name, _flaw(value, encoding))
                parts.append(_encode(value, encoding))
            sizes = [
                len(part)
                for part, encoding in zip(parts, self._encodings, strict=True)
                if encoding not in _SIZES
            ]
            self._samples.append(np.asarray(sizes, dtype="<u4").tobytes() + b"".join(parts))

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._staged.unlink(missing_ok=True)

    def finish(self) -> Iterable[tuple[Path, Path]]:
        """Write the shard in one piece."""
        config = msgspec.json.encode(
            {
                "column_encodings": self._encodings,
                "column_names": self._columns,
                "column_sizes": [_SIZES.get(encoding) for encoding in self._encodings],
                "compression": None,
                "format": "mds",
                "hashes": [],
                "size_limit": None,
                "version": 2,
            }
        )
        lengths = np.asarray([0, *map(len, self._samples)], dtype=np.uint64)
        offsets = np.cumsum(lengths) + 4 + 4 * len(lengths) + len(config)
        if offsets[-1] >= 1 << 32:
            hint = "export with fewer rows per shard"
            raise FileUnusable(path=str(self._final), reason="a shard of MDS holds at most 4 GiB", hint=hint)
        with self._staged.open("wb") as file:
            file.write(np.uint32(len(self._samples)).tobytes() + offsets.astype("<u4").tobytes() + config)
            file.writelines(self._samples)
        return [(self._staged, self._final)]


def index_of(folder: Path) -> bytes:
    """The ``index.json`` of all shards in a folder: without it the peer's own dataset opens nothing."""
    shards = []
    for path in sorted(folder.glob("*.mds")):
        with path.open("rb") as file:
            samples = int(np.frombuffer(file.read(4), dtype="<u4")[0])
            first = int(np.frombuffer(file.read(4), dtype="<u4")[0])
            file.seek(4 + 4 * (samples + 1))
            config = msgspec.json.decode(file.read(first - file.tell()))
        raw = {"basename": path.name, "bytes": path.stat().st_size, "hashes": {}}
        shards.append({**config, "raw_data": raw, "samples": samples, "zip_data": None})
    return msgspec.json.encode({"shards": shards, "version": 2})


def _flaw(value: Any, encoding: str) -> str | None:
    """Why a value has no place in a column, if it has none."""
    if encoding == "json":
        # Python's JSON, which the peer reads and writes, has NaN.
        return json_flaw(value, nan=True)
    if encoding == "str":
        return None if isinstance(value, str) else word_for(value)
    if encoding == "bytes":
        return None if isinstance(value, bytes | memoryview) else word_for(value)
    if encoding == "str_decimal":
        return None if isinstance(value, Decimal) else word_for(value)
    if encoding == "ndarray":
        return _array_flaw(value)
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return word_for(value)
    if encoding == "int":
        whole = isinstance(value, int | np.integer)
        return None if whole and -_LONG_MAX - 1 <= int(value) <= _LONG_MAX else f"the number {value!r}"
    exact = not math.isfinite(value) or float(value) == value
    return None if exact else f"the number {value!r}"


def _array_flaw(value: Any) -> str | None:
    if not isinstance(value, np.ndarray):
        return word_for(value)
    return None if value.dtype.name in VALUE_CODES.values() else f"an array of {value.dtype}"


def _encode(value: Any, encoding: str) -> bytes:
    if encoding in ("str", "str_decimal"):
        return str(value).encode()
    if encoding == "bytes":
        return bytes(value)
    if encoding in _SIZES:
        return np.asarray([value], dtype="<i8" if encoding == "int" else "<f8").tobytes()
    if encoding == "ndarray":
        return _encode_array(value)
    return json_text(value, nan=True)


def _encode_array(value: "np.ndarray[Any, Any]") -> bytes:
    """Type, number of axes with the width of their lengths, lengths, elements: arrays of any shape, as MDS lays them out."""
    array = np.ascontiguousarray(value).reshape(value.shape)
    code = next(code for code, name in VALUE_CODES.items() if name == array.dtype.name)
    longest = max(array.shape, default=0)
    power = next(power for power in range(4) if longest < 1 << (8 << power))
    shape = np.asarray(array.shape, dtype=f"<u{1 << power}").tobytes()
    return (
        bytes([code, array.ndim << 2 | power]) + shape + array.astype(array.dtype.newbyteorder("<")).tobytes()
    )
