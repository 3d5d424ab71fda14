"""Exports hold the values that they were given: every kind of value, null and empty apart, or a refusal that names row and field."""

import datetime
import math
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from penstock import Registry, errors
from penstock.formats.contract import FieldKind, Policy
from penstock.formats.export import WRITERS, writer_named
from penstock.registry.copies.export import export_version
from tests.formats.damage import same

_UTC = datetime.UTC
#: Kind -> values of it: usual, empty, and at the edges.
VALUES: dict[str, list[Any]] = {
    "string": ["x", "", "ü\n\0\ud7ff", "null", "日本" * 40_000],
    "int": [0, -1, 2**63 - 1, -(2**63)],
    "float": [0.5, -0.0, 1e308, 5e-324, float("inf"), math.nan],
    "bool": [True, False],
    "bytes": [b"x", b"", b"null", b"\0\xff"],
    "list": [[1, 2], [], [None]],
    "object": [{"a": 1, "b": "x"}, {"a": None, "b": ""}],
    "array": [np.arange(6, dtype="<u2").reshape(2, 3), np.zeros(0, "<f4"), np.array([math.nan], "<f8")],
    "decimal": [Decimal("1.50"), Decimal("-0.01")],
    "time": [datetime.datetime(2024, 2, 29, 1, 2, 3, 456), datetime.datetime(1, 1, 1)],
}
ODD: dict[str, list[Any]] = {
    "int": [2**64 - 1, 10**40],
    "time": [
        datetime.datetime(2024, 1, 1, tzinfo=_UTC),
        datetime.timedelta(1),
        datetime.time(1),
        pa.MonthDayNano((1, 2, 3)),
    ],
    "list": [[b"x"], [math.nan], [[("k", 1)]], [datetime.date(2024, 1, 1)]],
    "object": [{}, {"a": {}}, {"deep": [Decimal(1)]}],
    "array": [np.array(["a"]), np.array([True]), np.array([1j]), np.array(7, "<i4"), np.zeros((2, 0), "<i2")],
    "mixed": [1, "x", None, [1], b"x"],
}


def written(
    registry: Registry, target: str, kind: str, rows: list[dict[str, Any]]
) -> list[dict[str, Any]] | errors.ExportRefused:
    """Rows through a writer and back, or why not."""
    folder = Path(tempfile.mkdtemp(dir=Path(registry.url.removeprefix("file://")).parent))
    optional = any(row.get("f") is None for row in rows)
    schema = [FieldKind("f", kind, optional), FieldKind("n", "int")]
    writer = writer_named(target)(folder, "a", schema)
    try:
        writer.add(rows, 100)
        finished = list(writer.finish())
    except errors.ExportRefused as refusal:
        writer.abandon()
        assert list(folder.iterdir()) == []
        return refusal
    for staged, final in finished:
        staged.rename(final)
    policy = Policy(mixed=True)
    version = registry.register(f"e{len(registry.datasets())}", folder, format=writer.format, policy=policy)
    return list(version)


def unwrapped(row: dict[str, Any]) -> dict[str, Any]:
    """A row of an archive as it was before: without its key, and with the fields that stand together in JSON."""
    fields = {name: value for name, value in row.items() if name not in ("__key__", "json")}
    named = {name.removesuffix(".npy").removesuffix(".bin"): value for name, value in fields.items()}
    return {"f": None, **row.get("json", {}), **named}


def plain(value: Any) -> Any:
    """Numbers of numpy as Python's, which they are equal to."""
    return value.item() if isinstance(value, np.generic) else value


def listed(value: Any) -> Any:
    """What forms without arrays, and without pairs, give back."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [listed(item) for item in value]
    return value


@pytest.mark.parametrize("target", ["parquet", "jsonl.zst", "mds", "webdataset"])
@pytest.mark.parametrize("null", [False, True], ids=["values", "nulls among them"])
@pytest.mark.parametrize("kind", VALUES)
def test_every_kind_comes_back_or_is_refused_by_row_and_field(
    local: Registry, target: str, kind: str, null: bool
) -> None:
    """Goal: no value is changed. Method: every value alone, so that one that has no place does not hide another."""
    empty: list[Any] = [None] if null else []
    for value in [*VALUES[kind], *ODD.get(kind, [])]:
        rows = [{"f": cell, "n": number} for number, cell in enumerate([*empty, value, *empty])]
        outcome = written(local, target, kind, rows)
        if isinstance(outcome, errors.ExportRefused):
            assert outcome.field == "f"
            assert outcome.row in range(100, 100 + len(rows))
            assert not holds(target, value, null=null), (target, value)
            continue
        back = [unwrapped(row) for row in outcome] if target == "webdataset" else outcome
        got = [plain(row["f"]) for row in back]
        lists = target in ("jsonl.zst", "parquet") or kind in ("list", "object")
        expected = [listed(row["f"]) if lists else row["f"] for row in rows]
        assert same(listed(got) if lists else got, expected), (target, value)
        assert [plain(row["n"]) for row in back] == list(range(len(rows)))


def holds(target: str, value: Any, *, null: bool) -> bool:
    """Whether a form has a place for a value (and for a null beside it), as docs/spec/formats/exports.md says."""
    if isinstance(value, pa.MonthDayNano):
        return False
    in_json = _in_json(value)
    if target == "jsonl.zst":
        return in_json
    if target == "webdataset":
        return (
            in_json or isinstance(value, bytes) or (isinstance(value, np.ndarray) and value.dtype != object)
        )
    if target == "mds":
        if isinstance(value, np.ndarray):
            return not null and value.dtype.kind in "iuf"
        if isinstance(value, bytes | Decimal):
            return not null
        if isinstance(value, int) and abs(value) > 2**63:
            return null
        return in_json or (isinstance(value, float | list) and _in_json(value, nan=True))
    if isinstance(value, np.ndarray):
        return value.dtype.kind != "c"
    if isinstance(value, int):
        return abs(value) < 2**64
    return value not in ({}, {"a": {}}, [[("k", 1)]])


def _in_json(value: Any, *, nan: bool = False) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufU" and _in_json(value.tolist(), nan=nan)
    if isinstance(value, dict | list | tuple):
        items = value.values() if isinstance(value, dict) else value
        return all(_in_json(item, nan=nan) for item in items)
    if isinstance(value, float):
        return nan or math.isfinite(value)
    return value is None or isinstance(value, str | int)


@pytest.mark.parametrize("target", WRITERS)
def test_tokens_go_through_every_form(local: Registry, tmp_path: Path, target: str) -> None:
    """Null and empty apart: an empty list of tokens is a row, a null is refused where a form has none."""
    rows = [{"tokens": [1, 2, 3]}, {"tokens": []}, {"tokens": [65_535]}]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    local.register("a", tmp_path / "a.jsonl")
    exported = local.export("a", target, tmp_path / "out")
    back = [row["json"] if target == "webdataset" else row for row in exported]
    assert [{"tokens": listed(row["tokens"])} for row in back] == rows
    (tmp_path / "b.jsonl").write_bytes(b'{"tokens": [1]}\n{"tokens": null}\n')
    local.register("b", tmp_path / "b.jsonl")
    if target == "bin-idx":
        with pytest.raises(errors.ExportRefused, match=r"row 1 has null instead of .* in field 'tokens'"):
            local.export("b", target, tmp_path / "out-b")
    else:
        exported = local.export("b", target, tmp_path / "out-b")
        back = [row["json"] if target == "webdataset" else row for row in exported]
        assert back == [{"tokens": [1]}, {"tokens": None}]


def test_types_are_those_that_all_rows_of_a_shard_fit(local: Registry, tmp_path: Path) -> None:
    """A column that begins with two thousand nulls, empty lists and whole numbers is not settled by them."""
    rows: list[dict[str, Any]] = [{"a": None, "b": [], "c": 1, "d": {"x": None}} for _ in range(2_000)]
    rows += [{"a": "x", "b": ["y"], "c": 0.5, "d": {"x": "z"}}]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    local.register("a", tmp_path / "a.jsonl")
    assert list(local.export("a", "parquet", tmp_path / "out")) == rows


def test_a_field_of_several_kinds_is_named_with_its_row(local: Registry, tmp_path: Path) -> None:
    rows = [{"a": 1, "n": number} for number in range(1_500)] + [{"a": "x", "n": 1}]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    local.register("a", tmp_path / "a.jsonl", policy=Policy(mixed=True))
    with pytest.raises(errors.ExportRefused) as caught:
        local.export("a", "parquet", tmp_path / "out")
    assert (caught.value.field, caught.value.row) == ("a", 1_500)
    assert list((tmp_path / "out").iterdir()) == []
    # Forms of rows hold it.
    assert list(local.export("a", "jsonl.zst", tmp_path / "json")) == rows
    assert list(local.export("a", "mds", tmp_path / "mds")) == rows


def test_documents_of_several_sequences_stay_documents(local: Registry, tmp_path: Path) -> None:
    from tests.formats.test_megatron import write

    version = local.register("a", write(tmp_path / "a.bin", per_document=3, multimodal=True))
    exported = local.export("a", "bin-idx", tmp_path / "out")
    assert same(list(exported), list(version))
    with pytest.raises(errors.ExportRefused) as caught:
        export_version(local, version, "bin-idx", tmp_path / "cut", name="cut", rows_per_shard=4)
    assert caught.value.field == "document"


def test_rows_of_archives_that_lost_members_keep_the_others(local: Registry, tmp_path: Path) -> None:
    """A null of a column is a member that is not there, and an empty one stays empty; nothing becomes the word null."""
    rows = [
        {"__key__": "a", "jpg": b"", "json": None, "txt": ""},
        {"__key__": "b", "jpg": None, "json": {"x": 1}, "txt": "null"},
    ]
    writer = writer_named("webdataset")(tmp_path, "a", [FieldKind("jpg", "bytes", True)])
    writer.add(rows, 0)
    for staged, final in writer.finish():
        staged.rename(final)
    read_rows = list(local.register("a", tmp_path / "a.tar"))
    assert read_rows == [rows[0], {name: value for name, value in rows[1].items() if value is not None}]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"__key__": "a.b", "jpg": b""}, "__key__"),
        ({"__key__": "a", "jpg": "text"}, "jpg"),
        ({"__key__": "a", "cls": "7"}, "cls"),
        ({"__key__": "a", "cls": True}, "cls"),
        ({"JPG": b"x"}, "JPG"),
        ({"__key__": "a", "jpg": None}, "__key__"),
    ],
)
def test_names_and_values_that_an_archive_would_change_are_refused(
    tmp_path: Path, row: dict[str, Any], field: str
) -> None:
    writer = writer_named("webdataset")(tmp_path, "a", [FieldKind("jpg", "bytes", True)])
    with pytest.raises(errors.ExportRefused) as caught:
        writer.add([row], 7)
    writer.abandon()
    assert (caught.value.row, caught.value.field) == (7, field)
