"""From rows to fields: numbers and arrays that fit together become one array, everything else a list.

What a field becomes is decided by the values of the lane's own rows. Rows that hold nothing (padding, and samples that cannot be
decoded) are zeros in an array and None in a list; rows that hold something decide.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

#: Whole numbers up to here are floats without loss.
EXACT_MAX = 1 << 53
_INT_MAX = 1 << 63
_NUMBERS = (bool, int, float)
#: Values that are in no array, told by their type alone.
_NEVER = (str, bytes, list, dict, type(None))


def stack_rows(
    rows: Sequence[Mapping[str, Any] | None], like: Mapping[str, Any] | None, chosen: Iterable[str] = ()
) -> dict[str, Any]:
    """Fields of rows, of which some may be None; ``like`` is a row to learn the fields from where there is no other.

    Fields that were ``chosen`` are there even if no row has them.
    """
    if (columns := _alike(rows, chosen)) is not None:
        return {name: _stack(values, values) for name, values in columns.items()}
    names: dict[str, None] = dict.fromkeys(chosen)
    for row in rows:
        if row is not None and row.keys() != names.keys():
            names.update(dict.fromkeys(row))
    if all(row is None for row in rows) and like is not None:
        known = dict.fromkeys(names) | dict(like)
        return {name: _stack([None] * len(rows), [value]) for name, value in known.items()}
    # A field that one of the rows lacks is None there, so it becomes a list.
    held = [row for row in rows if row is not None]
    return {
        name: _stack(
            [None if row is None else row.get(name) for row in rows], [row.get(name) for row in held]
        )
        for name in names
    }


def _alike(rows: Sequence[Mapping[str, Any] | None], chosen: Iterable[str]) -> "dict[str, list[Any]] | None":
    """The fields of rows that all have the same ones, as nearly all have; None if any has not."""
    first = rows[0] if rows else None
    if not first:
        return None
    names = list(dict.fromkeys(chosen) | dict.fromkeys(first))
    held = [row for row in rows if row is not None]
    # As many fields as there are names, and each of the names among them.
    if len(held) != len(rows) or set(map(len, held)) != {len(names)}:
        return None
    try:
        values = list(map(itemgetter(*names), held))
    except KeyError:
        return None
    if len(names) == 1:
        return {names[0]: values}
    return dict(zip(names, map(list, zip(*values, strict=True)), strict=True))


def _stack(column: list[Any], values: list[Any]) -> Any:
    """One array that has the given values where the column has any, if they fit together, else the column as it is."""
    shape = _shape_of(values)
    if shape is None:
        return column
    dtype, dims = shape
    if len(values) == len(column) and not dims and dtype.kind in "bif" and type(values[0]) in _NUMBERS:
        return np.array(values, dtype=dtype)
    stacked = np.zeros((len(column), *dims), dtype=dtype)
    for at, value in enumerate(column):
        if value is not None:
            stacked[at] = value
    return stacked


def _shape_of(values: list[Any]) -> "tuple[np.dtype[Any], tuple[int, ...]] | None":
    """Type and shape that all values share, if they do."""
    kinds = set(map(type, values))
    if kinds == {bool}:
        return np.dtype(np.bool_), ()
    if kinds == {int}:
        return (np.dtype(np.int64), ()) if min(values) >= -_INT_MAX and max(values) < _INT_MAX else None
    if kinds == {float}:
        return np.dtype(np.float64), ()
    if kinds == {int, float}:
        exact = all(type(v) is float or -EXACT_MAX <= v <= EXACT_MAX for v in values)
        return (np.dtype(np.float64), ()) if exact else None
    if not kinds.isdisjoint(_NEVER) or not all(
        isinstance(value, np.ndarray | np.generic) for value in values
    ):
        return None
    shapes = {(value.dtype, value.shape) for value in values}
    return shapes.pop() if len(shapes) == 1 else None
