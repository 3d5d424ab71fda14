"""Copies of parquet and Arrow files hold every column: each value is what it is without a copy, or its column is refused by name."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import FileUnusable
from penstock.formats.columnar import survey
from tests.peers.columnar import arrow_table, more_arrow, nanoseconds

#: A form, and columns that are left out: streams with dictionaries are read through a copy anyway.
FORMS = (("parquet", ()), ("feather", ()), ("arrows", ()), ("arrows", ("dictionary",)))


def odd_columns() -> dict[str, pa.Array]:
    """All that pyarrow has a type for, alone and inside others; two values each."""
    plain = {
        name: table[name].combine_chunks()
        for table in (arrow_table(), nanoseconds())
        for name in table.column_names
    }
    words = pa.array(["x", "y"])
    lists = pa.array([[1], [2, 3]])
    columns = {
        **plain,
        **more_arrow(),
        "second": pa.array([1, None], pa.timestamp("s")),
        "time32": pa.array([5, None], pa.time32("ms")),
        "duration_ns": pa.array([5, None], pa.duration("ns")),
        "decimal32": pa.array(["1.5", None]).cast(pa.decimal32(5, 2)),
        "decimal64": pa.array(["1.5", None]).cast(pa.decimal64(12, 2)),
        "json": pa.ExtensionArray.from_storage(pa.json_(), words),
        "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8())),
        "opaque": pa.ExtensionArray.from_storage(
            pa.opaque(pa.int32(), "a", "b"), pa.array([1, 2], pa.int32())
        ),
        "ordered": pa.DictionaryArray.from_arrays(pa.array([1, 0]), words, ordered=True),
        "dictionary_of_lists": pa.DictionaryArray.from_arrays(pa.array([1, None]), lists),
        "dictionary_of_views": pa.DictionaryArray.from_arrays(pa.array([1, 0]), words.cast(pa.string_view())),
        "dictionary_of_times": pa.DictionaryArray.from_arrays(
            pa.array([1, 0]), pa.array([1, 2], pa.timestamp("ns"))
        ),
        "run_ends_of_views": pa.RunEndEncodedArray.from_arrays([1, 2], words.cast(pa.string_view())),
        "map_to_lists": pa.array([[("a", [1])], [("b", None)]], pa.map_(pa.string(), pa.list_(pa.int8()))),
        "list_of_maps": pa.array([[[("a", 1)]], None], pa.list_(pa.map_(pa.string(), pa.int8()))),
        "sparse_codes": pa.UnionArray.from_sparse(
            pa.array([5, 7], pa.int8()), [pa.array([1, 2]), words], type_codes=[5, 7]
        ),
        "list_of_unions": pa.ListArray.from_arrays([0, 1, 2], more_arrow()["dense_union"]),
        "half_lists": pa.array([[np.float16(1.5)], None], pa.list_(pa.float16())),
    }
    # Every one of them inside a struct, beside another field.
    inside = {
        f"in_{name}": pa.StructArray.from_arrays([values, words], ["odd", "word"])
        for name, values in columns.items()
    }
    return columns | inside


def written(table: pa.Table, form: str) -> bytes | None:
    """A file; None where pyarrow itself cannot write such a column in this form."""
    sink = io.BytesIO()
    try:
        if form == "parquet":
            pq.write_table(table, sink)
        else:
            new = pa.ipc.new_file if form == "feather" else pa.ipc.new_stream
            with new(sink, table.schema) as writer:
                writer.write_table(table)
    except (pa.ArrowException, KeyError):
        return None
    return sink.getvalue()


def register(place: Path, data: bytes, form: str) -> ps.Registry | str:
    """A registry with the file as ``rows``, or why it is refused."""
    place.mkdir()
    (place / f"rows.{form}").write_bytes(data)
    registry = ps.Registry(place / "registry")
    try:
        registry.register("rows", place / f"rows.{form}")
    except FileUnusable as problem:
        return str(problem)
    return registry


def refused_column(problem: str, columns: dict[str, pa.Array]) -> str:
    """The one column that an error names."""
    (name,) = re.findall(r"column '(\w+)", problem)
    assert name in columns, problem
    return str(name)


def rows_of_copy(registry: ps.Registry) -> list[dict[str, Any]]:
    """All rows, through row copies."""
    recipe = ps.Recipe(sources=[ps.Source("rows@1", epochs=1)], batch=2)
    with ps.open(recipe, registry=registry, threads=0, copies="always") as feed:
        version = feed.plan.prepared[0].version
        assert version.access.copies or all(shard.derived for shard in version.manifest.shards)
        return list(version)


@pytest.mark.parametrize(("form", "without"), FORMS)
def test_a_copy_holds_every_column_or_refuses_it_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, without: tuple[str, ...]
) -> None:
    """Goal: no column is dropped or changed by a copy. Method: all odd columns in one file, less those that are refused; read as it is,
    through the copy of a registration, and through row copies."""
    columns = {
        name: values
        for name, values in {"id": pa.array([0, 1]), **odd_columns()}.items()
        if not any(word in str(values.type) for word in without)
    }
    unwritable = {name for name, values in columns.items() if written(pa.table({name: values}), form) is None}
    assert form == "parquet" or not unwritable
    refused: list[str] = []
    registry: ps.Registry | str = ""
    # Each turn takes a column out, or is the last.
    for turn in range(len(columns)):
        kept = {name: columns[name] for name in columns if name not in unwritable.union(refused)}
        data = written(pa.table(kept), form)
        assert data is not None
        registry = register(tmp_path / f"{turn}", data, form)
        if not isinstance(registry, str):
            break
        refused.append(refused_column(registry, kept))
    assert isinstance(registry, ps.Registry)
    assert set(refused) <= {"sparse_codes", "in_sparse_codes"}
    if without:
        assert not any(shard.derived for shard in registry.resolve("rows").manifest.shards)
    expected = list(registry.resolve("rows"))
    assert [set(row) for row in expected] == [set(kept)] * 2
    assert repr(rows_of_copy(registry)) == repr(expected)
    monkeypatch.setattr(survey, "UNIT_BYTES_MAX", 0)
    copied = register(tmp_path / "copied", data, form)
    assert isinstance(copied, ps.Registry)
    version = copied.resolve("rows")
    assert all(shard.derived for shard in version.manifest.shards)
    assert repr(list(version)) == repr(expected)
    assert version.schema == registry.resolve("rows").schema
    for name in refused:
        data = written(pa.table({"id": columns["id"], name: columns[name]}), form)
        assert data is not None
        problem = register(tmp_path / name, data, form)
        assert isinstance(problem, str)
        assert refused_column(problem, columns) == name
