"""From rows to fields: numbers and arrays that fit together become one array, everything else a list.

What a field becomes is decided by the values of the lane's own rows. Rows that hold nothing (padding, and samples that cannot be
decoded) are zeros in an array and None in a list; rows that hold something decide.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: Whole numbers up to here are floats without loss.
EXACT_MAX = 1 << 53
_INT_MAX = 1 << 63


def stack_rows(rows: Sequence[Mapping[str, Any] | None], like: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fields of rows, of which some may be None; ``like`` is a row to learn the fields from where there is no other."""
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row or ()))
    if all(row is None for row in rows) and like is not None:
        return {name: _stack([None] * len(rows), [value]) for name, value in like.items()}
    return {
        name: _stack([None if row is None else row.get(name) for row in rows], _values(rows, name))
        for name in names
    }


def _values(rows: Sequence[Mapping[str, Any] | None], name: str) -> list[Any]:
    """The values of the rows that hold something; a field that one of them lacks is None there, so it becomes a list."""
    return [row.get(name) for row in rows if row is not None]


def _stack(column: list[Any], values: list[Any]) -> Any:
    """One array that has the given values where the column has any, if they fit together, else the column as it is."""
    shape = _shape_of(values)
    if shape is None:
        return column
    dtype, dims = shape
    stacked = np.zeros((len(column), *dims), dtype=dtype)
    for at, value in enumerate(column):
        if value is not None:
            stacked[at] = value
    return stacked


def _shape_of(values: list[Any]) -> "tuple[np.dtype[Any], tuple[int, ...]] | None":
    """Type and shape that all values share, if they do."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return np.dtype(np.bool_), ()
    if kinds == {int}:
        return (np.dtype(np.int64), ()) if all(-_INT_MAX <= v < _INT_MAX for v in values) else None
    if kinds == {float}:
        return np.dtype(np.float64), ()
    if kinds == {int, float}:
        exact = all(type(v) is float or -EXACT_MAX <= v <= EXACT_MAX for v in values)
        return (np.dtype(np.float64), ()) if exact else None
    if not all(isinstance(value, np.ndarray | np.generic) for value in values):
        return None
    shapes = {(value.dtype, value.shape) for value in values}
    return shapes.pop() if len(shapes) == 1 else None
