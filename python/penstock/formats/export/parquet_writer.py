"""Parquet with row groups small enough to be read at random in place.

Types are those that all rows of a shard fit: each call's rows are kept as Arrow finds them, and written as parquet when all
have come. A null and an empty value stay apart; a field that a row lacks is null, since a column has a place for every row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import FileUnusable
from penstock.formats.columnar.survey import first_line, kind_of, plain_type
from penstock.formats.contract import FieldKind, Row
from penstock.formats.export.value_limits import Refusals, first_failing, pairs, plain, word_for

if TYPE_CHECKING:
    import pyarrow as pa


_SIGNED_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one call, on disk."""

    path: Path
    first: int
    schema: "pa.Schema"


class ParquetWriter:
    """One row group per call of ``add``."""

    format = "parquet"

    def __init__(self, folder: Path, name: str, schema: Sequence[FieldKind]) -> None:
        self._final = folder / f"{name}.parquet"
        self._staged = folder / f".{name}.parquet.part"
        self._fields = [field.name for field in schema]
        self._parts: list[_Part] = []
        self._refusals = Refusals(str(self._final), "a column of parquet")

    def add(self, rows: list[Row], first: int) -> None:
        """Keep the rows as Arrow finds them."""
        import pyarrow as pa

        columns = {name: self._column(name, [row.get(name) for row in rows], first) for name in self._fields}
        table = pa.table(columns)
        path = self._staged.with_name(f"{self._staged.name}-{len(self._parts):05d}")
        self._parts.append(_Part(path, first, table.schema))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._staged.unlink(missing_ok=True)
        for part in self._parts:
            part.path.unlink(missing_ok=True)

    def finish(self) -> Iterable[tuple[Path, Path]]:
        """Write one row group after another, all of the same types."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            schema = pa.schema([(name, self._type(name)) for name in self._fields])
            with pq.ParquetWriter(self._staged, schema, compression="zstd") as writer:
                for part in self._parts:
                    writer.write_table(self._table(part, schema))
        except (pa.ArrowException, OSError) as reason:
            self.abandon()
            raise FileUnusable(
                path=str(self._final), reason=f"cannot write: {first_line(reason)}"
            ) from reason
        except BaseException:
            self.abandon()
            raise
        for part in self._parts:
            part.path.unlink()
        return [(self._staged, self._final)]

    def _column(self, name: str, cells: list[Any], first: int) -> "pa.Array":
        import pyarrow as pa

        problems = (pa.ArrowException, OverflowError, TypeError, ValueError)
        values = [plain(value) for value in cells]
        make = _maps if _are_maps(values) else _long if _are_long(values) else pa.array
        try:
            return make(values)
        except problems:
            at = first_failing(values, make, problems)
            kind = "pairs of another kind" if make is _maps else word_for(values[at])
            raise self._refusals.refuse(first + at, name, f"{kind} among the others") from None

    def _type(self, name: str) -> "pa.DataType":
        """What the values of all parts fit."""
        import pyarrow as pa

        field = self._parts[0].schema.field(name)
        for part in self._parts[1:]:
            more = part.schema.field(name)
            try:
                options = {"promote_options": "permissive"}
                joined = pa.unify_schemas([pa.schema([field]), pa.schema([more])], **options).field(0)
            except pa.ArrowException:
                joined = None
            if joined is None or not _holds(joined, field) or not _holds(joined, more):
                what = f"values of type {more.type} after others of type {field.type}"
                raise self._refusals.refuse(self._first_value(part, name), name, what)
            field = joined
        if (flaw := _type_flaw(field.type)) is not None:
            raise self._refusals.refuse(self._first_value(self._parts[0], name), name, flaw)
        return field.type

    def _first_value(self, part: _Part, name: str) -> int:
        """The first row of a part that has a value."""
        column = _read(part).column(name).to_pylist()
        return part.first + next((at for at, value in enumerate(column) if value is not None), 0)

    def _table(self, part: _Part, schema: "pa.Schema") -> "pa.Table":
        import pyarrow as pa

        table = _read(part)
        columns = []
        for wanted in schema:
            column = table.column(wanted.name)
            if column.type.equals(wanted.type):
                columns.append(column)
                continue
            values = column.to_pylist()

            def make(some: list[Any], wanted: "pa.DataType" = wanted.type) -> "pa.Array":
                return pa.array(some, type=wanted)

            try:
                columns.append(make(values))
            except (pa.ArrowException, OverflowError):
                at = first_failing(values, make, (pa.ArrowException, OverflowError))
                what = f"{values[at]!r:.60} among values of type {wanted.type}"
                raise self._refusals.refuse(part.first + at, wanted.name, what) from None
        return pa.table(columns, schema=schema)


def _read(part: _Part) -> "pa.Table":
    import pyarrow as pa

    with pa.OSFile(str(part.path), "rb") as source:
        return pa.ipc.open_stream(source).read_all()


def _are_maps(values: list[Any]) -> bool:
    """Whether values are lists of pairs, as maps are read."""
    lists = [value for value in values if value is not None]
    return any(lists) and all(
        isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
        for value in lists
    )


def _maps(values: list[Any]) -> "pa.Array":
    import pyarrow as pa

    entries = list(pairs(values))
    keys, items = pa.array([key for key, _ in entries]), pa.array([item for _, item in entries])
    return pa.array(values, type=pa.map_(keys.type, items.type))


def _are_long(values: list[Any]) -> bool:
    """Whether whole numbers need all 64 bits, which Arrow does not try by itself."""
    return any(type(value) is int and value > _SIGNED_MAX for value in values)


def _long(values: list[Any]) -> "pa.Array":
    import pyarrow as pa

    return pa.array(values, type=pa.uint64())


def _holds(joined: "pa.Field", part: "pa.Field") -> bool:
    """Whether values stay what they are: a whole number may become an equal float, nothing else another kind."""
    kinds = (kind_of(plain_type(part.type)), kind_of(plain_type(joined.type)))
    return kinds[0] == kinds[1] or kinds in (("int", "float"), ("null", kinds[1]))


def _type_flaw(data_type: "pa.DataType") -> str | None:
    """What in a type parquet has no place for."""
    import pyarrow as pa

    if pa.types.is_struct(data_type) and data_type.num_fields == 0:
        return "an object without fields"
    if pa.types.is_interval(data_type):
        return "an interval of months and days"
    flaws = (_type_flaw(data_type.field(at).type) for at in range(data_type.num_fields))
    return next((flaw for flaw in flaws if flaw), None)
