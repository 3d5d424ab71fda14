"""MosaicML's MDS shards: a table of offsets, the columns as JSON, and samples of joined fields."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock.errors import FileUnusable
from penstock.formats.contract import FieldKind, Row
from penstock.formats.mdscolumns import VALUE_CODES

#: Kind of a field -> encoding of its column; whatever else is there is kept as JSON.
_ENCODINGS = {"string": "str", "int": "int64", "float": "float64", "bytes": "bytes", "array": "ndarray"}
_SIZES = {"int64": 8, "float64": 8}


class MdsWriter:
    """Columns in the order of their names, as MDS wants them. Offsets are 32 bits wide, so a shard stays under 4 GiB."""

    format = "mds"

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None:
        self._final = folder / f"{name}.mds"
        self._staged = folder / f".{name}.mds.part"
        # A column that may be missing or null has no fixed encoding; JSON has null.
        kinds = {
            field.name: "json" if field.optional else _ENCODINGS.get(field.kind, "json") for field in schema
        }
        self._columns = sorted(kinds)
        self._encodings = [kinds[name] for name in self._columns]
        self._samples: list[bytes] = []

    def add(self, rows: list[Row], first: int) -> None:
        """Encode samples."""
        for number, row in enumerate(rows, start=first):
            try:
                parts = [_encode(row.get(n), e) for n, e in zip(self._columns, self._encodings, strict=True)]
            except (TypeError, ValueError) as reason:
                raise FileUnusable(
                    path=str(self._final), reason=f"row {number} cannot be encoded: {reason}"
                ) from reason
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


def _encode(value: Any, encoding: str) -> bytes:
    if encoding == "str":
        return str(value).encode()
    if encoding == "bytes":
        return bytes(value)
    if encoding in _SIZES:
        return np.asarray([value], dtype=encoding).tobytes()
    if encoding == "ndarray":
        return _encode_array(value)
    return msgspec.json.encode(value, enc_hook=lambda array: array.tolist())


def _encode_array(value: Any) -> bytes:
    """Type, number of axes with the width of their lengths, lengths, elements: arrays of any shape, as MDS lays them out."""
    array = np.ascontiguousarray(value)
    code = next((code for code, name in VALUE_CODES.items() if name == array.dtype.name), None)
    if code is None:
        raise ValueError(f"MDS has no arrays of {array.dtype}")
    longest = max(array.shape, default=0)
    power = next(power for power in range(4) if longest < 1 << (8 << power))
    shape = np.asarray(array.shape, dtype=f"<u{1 << power}").tobytes()
    return (
        bytes([code, array.ndim << 2 | power]) + shape + array.astype(array.dtype.newbyteorder("<")).tobytes()
    )
