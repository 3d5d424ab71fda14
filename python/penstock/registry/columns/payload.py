"""Payloads of measured columns as Arrow IPC files: lists of u16 or u32, in batches, without compression, for mapping."""

from pathlib import Path
from typing import Any

import numpy as np

from penstock._rust import digest_file
from penstock.store import Store

_BATCH_ELEMENTS = 1 << 20


class PayloadWriter:
    """Writes one shard's payloads; equal payloads give equal bytes."""

    def __init__(self, path: Path, dtype: str, field: str = "tokens") -> None:
        import pyarrow as pa

        self._pa = pa
        self._path = path
        self._dtype = np.dtype(dtype)
        self._field = field
        self._schema = pa.schema(
            [
                pa.field(
                    field, pa.large_list(pa.field("item", pa.from_numpy_dtype(self._dtype), nullable=False))
                )
            ]
        )
        self._writer = pa.ipc.new_file(str(path), self._schema)
        self._pending: list[Any] = []
        self._elements = 0

    def add(self, payloads: list[Any]) -> None:
        """Append rows."""
        for payload in payloads:
            self._pending.append(np.asarray(payload, dtype=self._dtype))
            self._elements += len(payload)
            if self._elements >= _BATCH_ELEMENTS:
                self._flush()

    def keep(self, store: Store) -> str:
        """Close the file, put it among the derived data, and return its digest."""
        self._flush()
        self._writer.close()
        name = digest_file(self._path)
        store.put_file_if_absent(f"derived/{name.removeprefix('b3:')}", self._path)
        return name

    def _flush(self) -> None:
        if not self._pending:
            return
        pa = self._pa
        offsets = np.zeros(len(self._pending) + 1, dtype=np.int64)
        np.cumsum([len(payload) for payload in self._pending], out=offsets[1:])
        elements = np.concatenate(self._pending)
        item = self._schema.field(self._field).type.value_field
        values = pa.LargeListArray.from_arrays(
            pa.array(offsets), pa.array(elements), type=pa.large_list(item)
        )
        self._writer.write_batch(pa.record_batch([values], schema=self._schema))
        self._pending, self._elements = [], 0
