"""Parquet, written by pyarrow and by Hugging Face datasets."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import BadRow, CorruptShard, DerivedTooLarge, FileUnusable, SchemaMixed
from penstock.formats.columnar import survey
from penstock.formats.contract import Policy
from penstock.registry import Registry
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, copy_path

ROWS = 2_000


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def table() -> pa.Table:
    """One column of every kind."""
    numbers = range(ROWS)
    return pa.table(
        {
            "id": pa.array(numbers, pa.uint16()),
            "score": pa.array([number / 3 if number % 5 else None for number in numbers], pa.float64()),
            "half": pa.array([1.5] * ROWS, pa.float16()),
            "text": [f"gr\u00fc\u00dfe {number}" * (number % 40) for number in numbers],
            "label": pa.array([("cat", "dog", None)[number % 3] for number in numbers]).dictionary_encode(),
            "image": [{"bytes": bytes([number % 256]) * 20, "path": None} for number in numbers],
            "tokens": [[1, 2, None][: number % 4] for number in numbers],
            "pairs": pa.array([[("k", number)] for number in numbers], pa.map_(pa.string(), pa.int64())),
            "day": [datetime.date(2024, 1, 1 + number % 28) for number in numbers],
            "when": pa.array([number * 1_000_003 for number in numbers], pa.timestamp("us", "UTC")),
            "tick": pa.array([number * 1_000_003 for number in numbers], pa.timestamp("ns")),
            "price": [Decimal(number).scaleb(-2) for number in numbers],
            "flag": [number % 2 == 0 for number in numbers],
            "nothing": pa.nulls(ROWS),
            "hash": pa.array([number.to_bytes(4, "big") for number in numbers], pa.binary(4)),
        }
    )


def rows() -> list[dict[str, Any]]:
    records = table().drop(["tick"]).to_pylist()
    names = table().column_names
    return [{name: (row | {"tick": row["id"] * 1_000_003})[name] for name in names} for row in records]


def test_every_kind_of_value_comes_back_exactly(tmp_path: Path, registry: Registry) -> None:
    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=300)
    version = registry.register("a", tmp_path / "a.parquet")

    assert_rows(version, rows())
    kinds = {field.name: (field.kind, field.optional) for field in version.schema}
    assert kinds == {
        "id": ("int", False),
        "score": ("float", True),
        "half": ("float", False),
        "text": ("string", False),
        "label": ("string", True),
        "image": ("object", False),
        "tokens": ("list", False),
        "pairs": ("list", False),
        "day": ("time", False),
        "when": ("time", False),
        "tick": ("int", False),
        "price": ("decimal", False),
        "flag": ("bool", False),
        "nothing": ("null", True),
        "hash": ("bytes", False),
    }
    assert version.verify().ok


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("data_page_version", ["1.0", "2.0"])
def test_any_encoding_is_read(
    tmp_path: Path, registry: Registry, compression: str, data_page_version: str
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(
        table(), path, row_group_size=999, compression=compression, data_page_version=data_page_version
    )
    assert_rows(registry.register("a", path), rows())


def test_what_hugging_face_writes_is_read(tmp_path: Path, registry: Registry) -> None:
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "grid": datasets.Array2D(shape=(2, 2), dtype="int32"),
        }
    )
    expected = [{"text": f"row {n}", "label": n % 2, "grid": [[n, 1], [2, 3]]} for n in range(500)]
    datasets.Dataset.from_list(expected, features=features).to_parquet(
        tmp_path / "hf.parquet", batch_size=100
    )
    assert_rows(registry.register("hf", tmp_path / "hf.parquet"), expected)


def test_a_flipped_bit_is_found(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path, row_group_size=500, compression="none")
    version = registry.register("a", path)
    assert path.stat().st_size > 300_000
    assert_flips_are_found(registry, version, path, rows())
    assert_cuts_are_found(registry, version, path)


def test_huge_row_groups_are_read_through_a_copy(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "UNIT_BYTES_MAX", 100_000)
    monkeypatch.setattr(survey, "COPY_BATCH_BYTES", 20_000)
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path)
    version = registry.register("a", path)
    copy = copy_path(registry, version)

    assert pa.ipc.open_file(copy).num_record_batches > 20
    assert_rows(version, rows())
    assert_flips_are_found(registry, version, copy, rows(), every=4)
    assert_flips_are_found(registry, version, path, rows(), read=False, every=8)
    # A copy that was pruned is made again, byte for byte.
    before = copy.read_bytes()
    copy.unlink()
    assert_rows(registry.resolve("a"), rows())
    assert copy.read_bytes() == before
    # The same file in another registry gives the same version.
    again = Registry(tmp_path / "other").register("a", path)
    assert again.digest == version.digest


def test_a_copy_that_would_be_too_large_is_refused(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "UNIT_BYTES_MAX", 100_000)
    pq.write_table(table(), tmp_path / "a.parquet")
    with pytest.raises(DerivedTooLarge, match="derived data"):
        registry.register("a", tmp_path / "a.parquet", policy=Policy(derived_bytes_max=10_000))


def test_many_threads_take_the_same_rows(tmp_path: Path, registry: Registry) -> None:
    from concurrent.futures import ThreadPoolExecutor

    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=100)
    version = registry.register("a", tmp_path / "a.parquet")
    expected = rows()
    wanted = [[(start * 7 + step * 131) % ROWS for step in range(60)] for start in range(16)]
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(version.take, wanted))
    assert taken == [[expected[row] for row in numbers] for numbers in wanted]


def whole(tmp_path: Path) -> bytes:
    pq.write_table(table(), tmp_path / "whole.parquet", row_group_size=500)
    return (tmp_path / "whole.parquet").read_bytes()


def test_a_file_that_is_no_whole_parquet_is_refused(tmp_path: Path, registry: Registry) -> None:
    """Goal: bad input is our error with the file's name. Method: cut a file anywhere, and put other bytes in it."""
    data = whole(tmp_path)
    path = tmp_path / "bad.parquet"
    for bad, reason in [
        (data[:-1], "truncated"),
        (data[: len(data) // 2], "truncated"),
        (data[:6], "truncated"),
        (b"PAR1PAR1", "truncated"),
        (data[:-8] + b"\xff\xff\xff\x7fPAR1", "not parquet that can be read"),
        (data[:4] + bytes(len(data) - 12) + data[-8:], "not parquet that can be read"),
        (b"PARE" + data[4:], "encrypted"),
    ]:
        path.write_bytes(bad)
        with pytest.raises(FileUnusable, match=reason) as caught:
            registry.register("bad", path)
        assert caught.value.path == str(path)
    path.write_bytes(b"")
    with pytest.raises(FileUnusable, match="empty"):
        registry.register("bad", path, format="parquet")
    path.write_bytes(b"hello")
    with pytest.raises(FileUnusable, match="does not begin with PAR1"):
        registry.register("bad", path, format="parquet")


def test_pages_that_were_damaged_before_are_never_a_raw_exception(tmp_path: Path, registry: Registry) -> None:
    """What is wrong before registration cannot be told from intended in every case, but it is ours or it is rows."""
    data = whole(tmp_path)
    path = tmp_path / "bad.parquet"
    refused = 0
    for part in range(24):
        place = 4 + part * (len(data) - 12) // 24
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        try:
            assert len(list(registry.register(f"bad-{part}", path))) <= ROWS
        except (FileUnusable, BadRow):
            refused += 1
    assert refused > 5


def test_no_rows_no_columns_and_names_used_twice_are_refused(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.parquet"
    one = pa.array([1])
    for bad, reason in [
        (pa.table({"a": pa.array([], pa.int64())}), "no rows"),
        (pa.table([one, one], names=["a", "a"]), "two columns are called 'a'"),
        (
            pa.table({"s": pa.StructArray.from_arrays([one, one], names=["x", "x"])}),
            "two fields of column 's' are called 'x'",
        ),
    ]:
        pq.write_table(bad, path)
        with pytest.raises(FileUnusable, match=reason):
            registry.register("a", path)


def test_bad_rows_fail_by_number_or_are_listed(tmp_path: Path, registry: Registry) -> None:
    """A row over the limit and one that is not UTF-8: pyarrow writes both without a word."""
    texts = [b"short"] * 50
    texts[7] = b"x" * 5_000
    texts[30] = b"\xff\xfe"
    column = pa.array(texts).view(pa.string())
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": list(range(50)), "text": column}), path, row_group_size=20)

    with pytest.raises(BadRow, match=r"row 8 .*longer than 1000 bytes"):
        registry.register("a", path, policy=Policy(row_bytes_max=1000))
    with pytest.raises(BadRow, match=r"row 31 .*UTF8"):
        registry.register("a", path)
    version = registry.register("a", path, policy=Policy(row_bytes_max=1000, skip_bad=5))
    assert [(bad.shard, bad.line) for bad in version.manifest.skipped] == [
        ("a.parquet", 8),
        ("a.parquet", 31),
    ]
    assert_rows(version, [{"n": n, "text": "short"} for n in range(50) if n not in (7, 30)])


def test_files_that_disagree_are_named(tmp_path: Path, registry: Registry) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "2.parquet")
    with pytest.raises(SchemaMixed, match=r"field 'a' is string in 2.parquet but int in 1.parquet"):
        registry.register("a", tmp_path / "*.parquet")


def test_summaries_beside_shards_are_left_out_and_said(tmp_path: Path, registry: Registry) -> None:
    data = tmp_path / "data"
    data.mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), data / "part-0.parquet")
    pq.write_metadata(pa.schema([("a", pa.int64())]), data / "_common_metadata")
    version = registry.register("a", data)
    assert version.rows == 2
    assert [(file.name, file.reason) for file in version.account.left_out] == [
        ("_common_metadata", "a summary of the files beside it")
    ]


def test_damage_while_open_is_an_error_too(tmp_path: Path, registry: Registry) -> None:
    """A row group that is first touched after the file was damaged is refused, whatever was read before."""
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path, row_group_size=500, compression="none")
    version = registry.register("a", path)
    assert version[ROWS - 1] == rows()[ROWS - 1]
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    assert version[ROWS - 2] == rows()[ROWS - 2]
    with pytest.raises(CorruptShard, match="corrupt at byte 0"):
        version[0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("us"), 253_402_300_800_000_000),
        (pa.timestamp("s", "Europe/Berlin"), -62_135_596_801),
        (pa.timestamp("ms", "Mars/Olympus"), 0),
        (pa.date32(), 3_000_000),
        (pa.duration("s"), 1 << 62),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_time_that_python_cannot_hold_is_a_bad_row(
    tmp_path: Path, registry: Registry, kind: pa.DataType, value: int, nested: bool
) -> None:
    """Goal: what is registered can be read. A file holds years beyond 9999, and zones that nobody knows."""
    times = pa.array([None, value, None], kind)
    column = pa.StructArray.from_arrays([times], ["deep"]) if nested else times
    pq.write_table(pa.table({"id": [1, 2, 3], "t": column}), tmp_path / "a.parquet")
    with pytest.raises(BadRow, match="column 't' holds a time that Python cannot") as caught:
        registry.register("a", tmp_path / "a.parquet")
    assert caught.value.line == 2
    version = registry.register("a", tmp_path / "a.parquet", policy=Policy(skip_bad=1))
    empty = {"deep": None} if nested else None
    assert_rows(version, [{"id": 1, "t": empty}, {"id": 3, "t": empty}])


def test_the_first_and_the_last_moment_are_times(tmp_path: Path, registry: Registry) -> None:
    ends = [datetime.datetime.min, datetime.datetime.max, None]
    pq.write_table(pa.table({"t": pa.array(ends, pa.timestamp("us"))}), tmp_path / "a.parquet")
    assert_rows(registry.register("a", tmp_path / "a.parquet"), [{"t": moment} for moment in ends])
