"""Times that Python has no value for: before the year 1, after 9999, or in a time zone that this machine does not know.

Files hold them, and reading such a row would fail in the middle of a training run; so rows that have one are found when a
file is registered. Columns without times cost nothing, those with times one look at their least and greatest value.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_DAY_SECONDS = 86_400
#: A day less at both ends, since a time zone moves a time by up to a day.
_DAYS = (-719_161, 2_932_895)
_DURATION_DAYS = (-999_999_998, 999_999_998)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_PROBLEMS = (OverflowError, ValueError)


def untold_rows(batch: "pa.RecordBatch") -> Iterator[tuple[int, str]]:
    """Rows with a time that Python cannot hold, and why; of a batch of plain types."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not _has_times(column.type) or all(_is_told(leaf) for leaf in _leaves(column)):
            continue
        for row in range(len(column)):
            try:
                column.slice(row, 1).to_pylist()
            except _PROBLEMS as problem:
                said = str(problem).strip().splitlines()[0]
                yield row, f"column {name!r} holds a time that Python cannot: {said}"


def _has_times(data_type: "pa.DataType") -> bool:
    import pyarrow as pa

    return pa.types.is_temporal(data_type) or any(
        _has_times(data_type.field(at).type) for at in range(data_type.num_fields)
    )


def _leaves(array: "pa.Array") -> Iterator["pa.Array"]:
    """The arrays of times inside an array."""
    import pyarrow as pa

    kinds = pa.types
    data_type = array.type
    if kinds.is_timestamp(data_type) or kinds.is_date(data_type) or kinds.is_duration(data_type):
        yield array
    elif kinds.is_struct(data_type):
        for child in array.flatten():
            yield from _leaves(child)
    elif kinds.is_map(data_type):
        for child in (array.keys, array.items):
            yield from _leaves(child)
    elif kinds.is_list(data_type) or kinds.is_large_list(data_type) or kinds.is_fixed_size_list(data_type):
        yield from _leaves(array.flatten())


def _is_told(leaf: "pa.Array") -> bool:
    """Whether all values are certainly times of Python."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(leaf) == leaf.null_count:
        return True
    data_type = leaf.type
    if pa.types.is_date32(data_type):
        numbers, per_day = leaf.view(pa.int32()), 1
    elif pa.types.is_date64(data_type):
        numbers, per_day = leaf.view(pa.int64()), _DAY_SECONDS * 1_000
    else:
        numbers, per_day = leaf.view(pa.int64()), _DAY_SECONDS * _PER_SECOND[data_type.unit]
    low, high = _DURATION_DAYS if pa.types.is_duration(data_type) else _DAYS
    extremes = pc.min_max(numbers)
    if extremes["min"].as_py() < low * per_day or extremes["max"].as_py() > high * per_day:
        return False
    try:
        # Whether the time zone is known.
        leaf.drop_null().slice(0, 1).to_pylist()
    except _PROBLEMS:
        return False
    return True
