"""A filter bound to a version: its names are checked against the schema, and the measured columns that it names are found.

Names are looked up in this order: a field of the schema (optional ones too), then a measured column. A name that is neither is
refused with the nearest one, because a comparison with a field that no row has would pass or drop every row in silence.
Fields inside a field are not in a schema, so rows are looked at: one that none of them has is refused as well.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.data.recipe.expression import MEASURED, ColumnReference, Expression
from penstock.errors import ColumnAmbiguous, FieldUnknown
from penstock.formats.contract import Row
from penstock.registry import Version
from penstock.registry.columns.column import Column

#: Rows that are looked at for fields inside fields, spread over the version, before all are.
LOOKED_AT_MAX = 1000
_PAGE = 1024
#: Kinds of fields that have no fields inside them.
_PLAIN = ("bool", "int", "float", "decimal", "string", "bytes", "time", "array", "list")


@dataclass(frozen=True, slots=True)
class MeasuredValues:
    """The values of a measured column, by row of the version."""

    key: str
    values: Any


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Judges rows of one version; call it with a row and its number."""

    expression: Expression
    measured: Mapping[ColumnReference, MeasuredValues]

    @property
    def keys(self) -> dict[str, str]:
        """The keys of the measured columns, by how the expression names them: what its verdict depends on beside the row."""
        named = {" ".join(filter(None, reference)): column.key for reference, column in self.measured.items()}
        return dict(sorted(named.items()))

    def __call__(self, row: Row, number: int) -> bool:
        """Whether a row passes."""
        if not self.measured:
            return self.expression(row)
        values = {reference: column.values[number].item() for reference, column in self.measured.items()}
        return self.expression({**row, MEASURED: values})


def bind_filter(
    text: str,
    version: Version,
    *,
    own: Mapping[str, Callable[[], Column]] | None = None,
    mapped: bool = False,
) -> RowFilter:
    """The filter of a version. ``own`` are columns that a recipe measures itself, which come before those that are kept; rows that
    were ``mapped`` may have any field, so only columns that are named as such are looked up.
    """
    expression = Expression(text)
    columns = _Columns(text, version, own or {})
    referenced: dict[ColumnReference, Column] = {}
    for reference in expression.columns:
        referenced[reference] = columns.named(*reference)
    if not mapped:
        kinds = {field.name: field.kind for field in version.schema}
        for path in expression.fields:
            if _is_field(path, kinds):
                continue
            if len(path) > 1 and path[0] in kinds:
                dotted = ".".join(path)
                inside = tuple(sorted(kinds))
                raise FieldUnknown(
                    expression=text, name=dotted, version=_said(path, version, kinds), known=inside
                )
            referenced[(path[0], "")] = columns.named(path[0])
    values = {
        reference: MeasuredValues(column.key, version.column_values(column))
        for reference, column in referenced.items()
    }
    return RowFilter(expression, values)


def check_inner_fields(text: str, version: Version, *, all_rows: bool) -> None:
    """That fields inside fields exist in some row: of a sample, or of all where the sample has none."""
    kinds = {field.name: field.kind for field in version.schema}
    paths = [path for path in Expression(text).fields if len(path) > 1 and ".".join(path) not in kinds]
    sample = np.unique(np.linspace(0, version.rows - 1, min(version.rows, LOOKED_AT_MAX)).astype(np.int64))
    whole = all_rows or version.rows <= LOOKED_AT_MAX
    for path in paths:
        names: dict[str, None] = {}
        if any(_has(row, path, names) for row in _rows(version, sample)) or not whole:
            continue
        if not any(_has(row, path, names) for row in _rows(version, np.arange(version.rows))):
            parent = ".".join(path[:-1])
            known = tuple(f"{parent}.{name}" for name in sorted(names))
            raise FieldUnknown(expression=text, name=".".join(path), version=version.address, known=known)


def _is_field(path: tuple[str, ...], kinds: dict[str, str]) -> bool:
    """Whether the schema has a field, or one that may have it inside."""
    if ".".join(path) in kinds:
        return True
    heads = [".".join(path[:at]) for at in range(len(path) - 1, 0, -1)]
    return any(kinds.get(head, _PLAIN[0]) not in _PLAIN for head in heads)


def _said(path: tuple[str, ...], version: Version, kinds: dict[str, str]) -> str:
    return f"{version.address} ({path[0]} is of kind {kinds[path[0]]})"


def _rows(version: Version, numbers: Any) -> Iterator[Row]:
    for first in range(0, len(numbers), _PAGE):
        yield from version.take(numbers[first : first + _PAGE])


def _has(row: Row, path: tuple[str, ...], names: dict[str, None]) -> bool:
    """Whether a row has a field inside a field; the names that stand there instead are noted."""
    # A field whose own name has dots in it comes first, as where the expression is run.
    own = next((at for at in range(len(path) - 1, 0, -1) if ".".join(path[:at]) in row), 1)
    value: Any = row.get(".".join(path[:own]))
    for name in path[own:-1]:
        value = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping):
        return False
    names.update(dict.fromkeys(map(str, value)))
    return path[-1] in value


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where names that are no fields are looked up."""

    text: str
    version: Version
    own: Mapping[str, Callable[[], Column]]

    def named(self, name: str, key: str = "") -> Column:
        """The one column of a name (and of a key that begins so)."""
        if not key and name in self.own:
            return self.own[name]()
        kept = self.version.columns()
        fitting = [
            column
            for column in kept
            if column.name == name and column.key.startswith(key.removeprefix("b3:"))
        ]
        if len(fitting) > 1:
            keys = tuple(column.key for column in fitting)
            raise ColumnAmbiguous(name=name, version=self.version.address, keys=keys)
        if not fitting:
            known = [field.name for field in self.version.schema]
            known += [
                candidate
                for candidate in (*self.own, *(column.name for column in kept))
                if candidate not in known
            ]
            shown = f"{name} {key}" if key else name
            raise FieldUnknown(
                expression=self.text,
                name=shown,
                version=self.version.address,
                known=tuple(dict.fromkeys(known)),
            )
        return fitting[0]
