"""Parquet and Arrow files: pyarrow, polars, pandas and Hugging Face datasets, with the odd types of each."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from tests.peers.case import Case, Rows

_DAY = datetime.date(2024, 2, 29)
_TIME = datetime.datetime(2024, 2, 29, 1, 2, 3, 456_789)


def arrow_table() -> pa.Table:
    """What parquet has a place for."""
    return pa.table(
        {
            "bool": pa.array([True, None]),
            "int8": pa.array([-128, None], pa.int8()),
            "uint64": pa.array([2**64 - 1, None], pa.uint64()),
            "half": pa.array(np.array([0.5, np.nan], np.float16)),
            "double": pa.array([-0.0, None]),
            "string": pa.array(["ü", ""]),
            "large_string": pa.array(["x", None], pa.large_string()),
            "string_view": pa.array(["longer than twelve bytes", None], pa.string_view()),
            "binary": pa.array([b"\0\xff", b""]),
            "binary_view": pa.array([b"longer than twelve bytes", None], pa.binary_view()),
            "fixed_binary": pa.array([b"abc", None], pa.binary(3)),
            "date32": pa.array([_DAY, None]),
            "date64": pa.array([_DAY, None], pa.date64()),
            "time": pa.array([_TIME.time(), None]),
            "timestamp": pa.array([_TIME, None], pa.timestamp("us")),
            "timestamp_tz": pa.array([_TIME, None], pa.timestamp("ms", "Europe/Berlin")),
            "duration": pa.array([datetime.timedelta(days=-1), None]),
            "decimal": pa.array([Decimal("1.50"), None]),
            "decimal256": pa.array([Decimal("1.50"), None], pa.decimal256(60, 3)),
            "list": pa.array([[1, None], []]),
            "list_view": pa.array([["a"], None], pa.list_view(pa.string())),
            "fixed_list": pa.array([[1, 2], None], pa.list_(pa.int16(), 2)),
            "struct": pa.array([{"a": 1, "b": None}, None]),
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int8())),
            "dictionary": pa.array(["a", None]).dictionary_encode(),
            "list_of_dictionary": pa.ListArray.from_arrays(
                [0, 1, 2], pa.array(["a", "b"]).dictionary_encode()
            ),
            "null": pa.nulls(2),
        }
    )


def more_arrow() -> dict[str, pa.Array]:
    """What only Arrow files have a place for."""
    ends = pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"])
    return {
        "run_ends": ends,
        "list_of_run_ends": pa.ListArray.from_arrays([0, 1, 2], ends),
        "large_list_view": pa.array([[1], None], pa.large_list_view(pa.int8())),
        "sparse_union": pa.UnionArray.from_sparse(
            pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
        ),
        "dense_union": pa.UnionArray.from_dense(
            pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["b"])]
        ),
        "empty_struct": pa.array([{}, None], pa.struct([])),
        "interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
        "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8, dtype="f4").reshape(2, 2, 2)),
    }


def nanoseconds() -> pa.Table:
    """Times that Python's types cannot hold to the last digit, and other types with a class of their own."""
    return pa.table(
        {
            "timestamp_ns": pa.array([1_709_168_523_456_789_012, None], pa.timestamp("ns")),
            "time_ns": pa.array([1_001, None], pa.time64("ns")),
            "uuid": pa.array([bytes(range(16)), None], pa.uuid()),
        }
    )


def whole_nanoseconds(row: dict[str, Any]) -> dict[str, Any]:
    """Nanoseconds as whole numbers, and an identifier as its bytes."""
    return {
        "timestamp_ns": None if row["timestamp_ns"] is None else int(row["timestamp_ns"].value),
        # The peer's own value has lost the last digits.
        "time_ns": None if row["time_ns"] is None else row["time_ns"].microsecond * 1_000 + 1,
        "uuid": None if row["uuid"] is None else row["uuid"].bytes,
    }


def polars_frame() -> pl.DataFrame:
    """Polars' own types."""
    return pl.DataFrame(
        {
            "string": ["longer than twelve bytes", None],
            "categorical": pl.Series(["a", None], dtype=pl.Categorical),
            "enum": pl.Series(["y", "x"], dtype=pl.Enum(["x", "y"])),
            "binary": [b"\0", None],
            "u64": pl.Series([2**64 - 1, 0], dtype=pl.UInt64),
            "i128": pl.Series([2**63 - 1, None], dtype=pl.Int64),
            "f32": pl.Series([0.5, None], dtype=pl.Float32),
            "bool": [True, None],
            "date": [_DAY, None],
            "time_us": pl.Series([_TIME, None], dtype=pl.Datetime("us")),
            "time_zone": pl.Series([_TIME, None], dtype=pl.Datetime("us", "UTC")),
            "duration": [datetime.timedelta(1), None],
            "decimal": pl.Series([Decimal("1.50"), None], dtype=pl.Decimal(10, 2)),
            "list": [["a", None], []],
            "list_of_categorical": pl.Series([["a"], ["b", None]], dtype=pl.List(pl.Categorical)),
            "array": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int16, 2)),
            "struct": [{"x": 1, "y": "s"}, {"x": None, "y": ""}],
            "null": pl.Series([None, None], dtype=pl.Null),
        }
    )


def pandas_frame() -> pd.DataFrame:
    """Pandas' own types, with an index."""
    return pd.DataFrame(
        {
            "nullable": pd.array([1, None], dtype="Int64"),
            "category": pd.Categorical(["a", "b"]),
            "float": [0.5, None],
            "string": ["x", None],
            "list": [[1, 2], []],
        },
        index=["first", "second"],
    )


def hugging_face() -> datasets.Dataset:
    """Features of datasets."""
    features = datasets.Features(
        {
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "tokens": datasets.List(datasets.Value("uint16")),
            "grid": datasets.Array2D((2, 2), "float32"),
            "text": datasets.Value("large_string"),
            "nested": {"a": datasets.Value("string"), "b": datasets.List(datasets.Value("bool"))},
        }
    )
    rows = [
        {
            "label": number % 2,
            "tokens": [number, 65_535],
            "grid": [[number, 0.5], [1, 2]],
            "text": "ü" * number,
            "nested": {"a": None, "b": [True, None]},
        }
        for number in range(5)
    ]
    return datasets.Dataset.from_list(rows, features=features)


def _written(name: str, write: Callable[[Path], Any]) -> Callable[[Path], Path]:
    def run(folder: Path) -> Path:
        write(folder / name)
        return folder / name

    return run


def _ipc(table: pa.Table, container: str) -> Callable[[Path], Path]:
    def write(path: Path) -> None:
        make = pa.ipc.new_file if container == "file" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table)

    return _written(f"a.{container}.arrow", write)


def _read_ipc(path: Path) -> Rows:
    with pa.OSFile(str(path), "rb") as source:
        opened = pa.ipc.open_stream(source) if ".stream." in path.name else pa.ipc.open_file(source)
        rows: Rows = opened.read_all().to_pylist()
        return rows


def _saved(folder: Path) -> Path:
    hugging_face().save_to_disk(folder / "saved")
    return folder / "saved" / "data-00000-of-00001.arrow"


def _pandas_rows(frame: pd.DataFrame) -> Rows:
    return [
        {**row, "list": np.asarray(row["list"]).tolist()} for row in frame.reset_index().to_dict("records")
    ]


def _from_pandas(row: dict[str, Any]) -> dict[str, Any]:
    named = {**{name: row[name] for name in list(row)[1:]}, "__index_level_0__": row["index"]}
    return {
        name: None if not isinstance(value, list) and pd.isna(value) else value
        for name, value in named.items()
    }


_EXACT = "nanoseconds are whole numbers and identifiers bytes, since Python's times end at microseconds"
_INDEX = "the index is the column that the file calls it, and what pandas shows as NaN is null"
_ALL_ARROW = pa.table(
    {**dict(zip(arrow_table().column_names, arrow_table().columns, strict=True)), **more_arrow()}
)

CASES = [
    Case(
        "parquet",
        "pyarrow",
        "every type that parquet has",
        _written("a.parquet", lambda path: pq.write_table(arrow_table(), path)),
        lambda path: pq.read_table(path).to_pylist(),
    ),
    Case(
        "parquet",
        "pyarrow",
        "nanoseconds and identifiers",
        _written("a.parquet", lambda path: pq.write_table(nanoseconds(), path)),
        lambda path: pq.read_table(path).to_pylist(),
        _EXACT,
        whole_nanoseconds,
    ),
    Case("arrow", "pyarrow", "every type, as a file", _ipc(_ALL_ARROW, "file"), _read_ipc),
    Case("arrow", "pyarrow", "every type, as a stream", _ipc(_ALL_ARROW, "stream"), _read_ipc),
    Case(
        "arrow",
        "pyarrow",
        "Feather with lz4",
        _written("a.feather", lambda path: pa.feather.write_feather(arrow_table(), path, compression="lz4")),
        lambda path: pa.feather.read_table(path).to_pylist(),
    ),
    Case(
        "parquet",
        "polars",
        "categoricals, enums, views, decimals, arrays, structs",
        _written("a.parquet", lambda path: polars_frame().write_parquet(path)),
        lambda path: pl.read_parquet(path).to_dicts(),
    ),
    Case(
        "arrow",
        "polars",
        "the same as a file",
        _written("a.arrow", lambda path: polars_frame().write_ipc(path)),
        lambda path: pl.read_ipc(path).to_dicts(),
    ),
    Case(
        "arrow",
        "polars",
        "the same as a stream",
        _written("a.arrow", lambda path: polars_frame().write_ipc_stream(path)),
        lambda path: pl.read_ipc_stream(path).to_dicts(),
    ),
    Case(
        "parquet",
        "pandas",
        "categories, nullable numbers, an index",
        _written("a.parquet", lambda path: pandas_frame().to_parquet(path)),
        lambda path: _pandas_rows(pd.read_parquet(path)),
        _INDEX,
        _from_pandas,
    ),
    Case(
        "parquet",
        "datasets",
        "labels, arrays, nested features",
        _written("a.parquet", lambda path: hugging_face().to_parquet(path)),
        lambda path: datasets.Dataset.from_parquet(str(path), cache_dir=str(path.parent / "cache")).to_list(),
    ),
    Case(
        "arrow",
        "datasets",
        "save_to_disk",
        _saved,
        lambda path: datasets.load_from_disk(str(path.parent)).to_list(),
    ),
]
