"""Parquet with row groups small enough to be read at random in place."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import FileUnusable
from penstock.formats.contract import FieldKind, Row


class ParquetWriter:
    """One row group per call of ``add``; the first rows decide the column types."""

    format = "parquet"

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None:
        self._final = folder / f"{name}.parquet"
        self._staged = folder / f".{name}.parquet.part"
        self._fields = [field.name for field in schema]
        self._writer: Any = None
        self._schema: Any = None

    def add(self, rows: list[Row], first: int) -> None:
        """Write one row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: [_plain(row.get(name)) for row in rows] for name in self._fields}
        try:
            table = pa.table(columns) if self._schema is None else pa.table(columns, schema=self._schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as reason:
            raise FileUnusable(
                path=str(self._final), reason=f"rows from {first} on do not fit the columns: {reason}"
            ) from reason
        if self._writer is None:
            self._schema = table.schema
            self._writer = pq.ParquetWriter(self._staged, self._schema, compression="zstd")
        self._writer.write_table(table)

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._writer is not None:
            self._writer.close()
        self._staged.unlink(missing_ok=True)

    def finish(self) -> Iterable[tuple[Path, Path]]:
        """Write the footer."""
        self._writer.close()
        return [(self._staged, self._final)]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
