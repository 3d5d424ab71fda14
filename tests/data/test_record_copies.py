"""Row copies: shuffled records of parquet and Arrow through small batches, the same batches with them and without."""

import datetime
import decimal
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.data.plan import row_copies
from penstock.errors import CorruptShard, DerivedTooLarge, RecipeInvalid
from penstock.formats.columnar.row_copy import BATCH_BYTES, measure_units
from penstock.formats.contract import Policy

ROWS, SHARDS = 600, 3
ROOT = Path(__file__).resolve().parents[2]


def row(number: int) -> dict[str, Any]:
    """Kinds of values that are easily changed on the way."""
    return {
        "id": number,
        "text": None if number % 7 == 0 else f"text {number} " * (number % 90),
        "list": [[number], [], None][: number % 4],
        "struct": {"a": number / 3, "b": f"{number}".encode()},
        "day": datetime.date(2020, 1, 1) + datetime.timedelta(number),
        "at": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=number),
        "money": decimal.Decimal(number) / 4,
        "category": ["x", "y"][number % 2],
    }


SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "text": pa.string(),
        "list": pa.list_(pa.list_(pa.int32())),
        "struct": pa.struct({"a": pa.float32(), "b": pa.binary()}),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "money": pa.decimal128(12, 2),
        "category": pa.dictionary(pa.int8(), pa.string()),
        "map": pa.map_(pa.string(), pa.int64()),
    }
)


def write(folder: Path, form: str) -> Path:
    """Files with one large unit each."""
    folder.mkdir()
    for shard in range(SHARDS):
        rows = [
            row(n) | {"map": [("k", n)]} for n in range(shard * ROWS // SHARDS, (shard + 1) * ROWS // SHARDS)
        ]
        table, path = pa.Table.from_pylist(rows, SCHEMA), folder / f"{shard}.{form}"
        if form == "parquet":
            pq.write_table(table, path)
        elif form == "feather":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        else:
            table = table.drop_columns("category")
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
    return folder


def recipe_of(**fields: Any) -> ps.Recipe:
    return ps.Recipe(sources=[ps.Source("rows@1", epochs=1)], batch=40, seed=3, **fields)


def read(registry: ps.Registry, **options: Any) -> list[str]:
    fields = {"shuffle": options.pop("shuffle", "full")}
    with ps.open(recipe_of(**fields), registry=registry, **{"threads": 0, **options}) as feed:
        return [batch.digest for batch in feed]


def copies(registry: ps.Registry) -> list[Any]:
    return [copy for copy in registry.derived() if copy.copy]


@pytest.mark.parametrize("form", ["parquet", "feather", "arrows"])
@pytest.mark.parametrize("shuffle", ["full", "local"])
def test_batches_are_the_same_with_and_without_copies(tmp_path: Path, form: str, shuffle: str) -> None:
    registry = ps.Registry(tmp_path / "registry")
    version = registry.register("rows", write(tmp_path / "rows", form))
    expected = read(registry, copies="never", shuffle=shuffle)
    assert copies(registry) == []
    for threads in (0, 2):
        assert read(registry, copies="always", threads=threads, shuffle=shuffle) == expected
    assert [copy.used_by for copy in copies(registry)] == [["rows@1"]] * SHARDS
    # No part of the version: whoever registers the same bytes gets the same one.
    assert registry.resolve("rows@1").digest == version.digest
    assert ps.Registry(tmp_path / "other").register("rows", tmp_path / "rows").digest == version.digest


def test_copies_hold_many_small_batches(tmp_path: Path) -> None:
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", write(tmp_path / "rows", "parquet"))
    with ps.open(recipe_of(), registry=registry, threads=0, copies="always") as feed:
        version = feed.plan.prepared[0].version
        shard = version.manifest.shards[0]
        units = measure_units(version.open_shard(shard))
        assert units.rows == shard.rows
        assert units.count > 2
        assert units.unit_bytes < 4 * BATCH_BYTES


def test_only_large_units_of_large_sources_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: nobody pays for a copy that brings nothing. Method: the same files, with other ideas of what is large."""
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", write(tmp_path / "rows", "parquet"))
    expected = read(registry)
    assert copies(registry) == []
    monkeypatch.setattr(row_copies, "CACHED_BYTES", 1 << 10)
    assert read(registry) == expected
    assert copies(registry) == []
    monkeypatch.setattr(row_copies, "UNIT_BYTES_SMALL", 1 << 10)
    read(registry, shuffle="none")
    assert copies(registry) == []
    ps.batch_at(recipe_of(), step=3, registry=registry)
    assert copies(registry) == []
    assert read(registry) == expected
    assert len(copies(registry)) == SHARDS


def test_pruned_copies_are_made_again_and_missed_by_nobody(tmp_path: Path) -> None:
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", write(tmp_path / "rows", "parquet"))
    expected = read(registry, copies="always")
    with ps.open(recipe_of(), registry=registry, threads=0, copies="always") as feed:
        # Before any shard is open.
        freed = registry.prune(copy.name for copy in copies(registry))
        assert freed > 0
        assert copies(registry) == []
        assert list(registry.store.entries("copies")) == []
        assert [batch.digest for batch in feed] == expected
    assert read(registry, copies="always") == expected
    assert len(copies(registry)) == SHARDS
    # Deleted by hand, which leaves the record behind.
    for entry in list(registry.store.entries("derived")):
        registry.store.delete(entry.name)
    assert read(registry, copies="always") == expected
    assert len(copies(registry)) == SHARDS


def test_copies_that_would_pass_the_limit_are_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry = ps.Registry(tmp_path / "registry")
    version = registry.register("rows", write(tmp_path / "rows", "parquet"))
    monkeypatch.setattr(row_copies, "CACHED_BYTES", 1 << 10)
    monkeypatch.setattr(row_copies, "UNIT_BYTES_SMALL", 1 << 10)
    monkeypatch.setattr(row_copies, "COPIED_BYTES_MAX", 1 << 10)
    assert read(registry) == read(registry, copies="never")
    assert "read without a copy" in caplog.text
    assert copies(registry) == []
    from penstock.registry.copies.row_copies import make_copies

    with pytest.raises(DerivedTooLarge, match="rows@1"):
        make_copies(version, registry.store, bytes_max=1 << 10)
    with pytest.raises(RecipeInvalid, match="auto, always, never, got 'sometimes'"):
        read(registry, copies="sometimes")


def test_rows_that_were_left_out_stay_out(tmp_path: Path) -> None:
    """Goal: row numbers mean the same in the copy. Method: rows over the limit are left out at registration."""
    rows = [{"id": n, "text": "long " * 2000 if n % 10 == 3 else "short"} for n in range(50)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    registry = ps.Registry(tmp_path / "registry")
    policy = Policy(skip_bad=10, row_bytes_max=5000)
    registry.register("rows", tmp_path / "rows.parquet", policy=policy)
    recipe = ps.Recipe(sources=[ps.Source("rows@1", epochs=1)], batch=9)
    runs = []
    for choice in ("never", "always"):
        with ps.open(recipe, registry=registry, threads=0, copies=choice) as feed:
            runs.append([(batch.digest, batch["id"].tolist()) for batch in feed])
    assert runs[0] == runs[1]
    assert sorted(n for _, ids in runs[0] for n in ids) == [n for n in range(50) if n % 10 != 3]


def test_a_damaged_copy_is_found_and_a_damaged_original_is_never_copied(tmp_path: Path) -> None:
    """Goal: D4. Method: flip a bit of the copy, then one of an original whose copy was pruned."""
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", write(tmp_path / "rows", "parquet"))
    read(registry, copies="always")
    (name, *_) = sorted(entry.name for entry in registry.store.entries("derived"))
    _flip(registry.store.local_path(name))
    with pytest.raises(CorruptShard):
        read(ps.Registry(tmp_path / "registry"), copies="always")
    registry.prune(copy.name for copy in copies(registry))
    _flip(tmp_path / "rows" / "1.parquet")
    with pytest.raises(CorruptShard, match=r"1\.parquet"):
        read(ps.Registry(tmp_path / "registry"), copies="always")


def _flip(path: Any) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


def test_processes_that_copy_at_once_agree(tmp_path: Path) -> None:
    registry = ps.Registry(tmp_path / "registry")
    registry.register("rows", write(tmp_path / "rows", "parquet"))
    expected = read(registry, copies="never")
    code = (
        "import sys, json, penstock as ps\n"
        "recipe = ps.Recipe(sources=[ps.Source('rows@1', epochs=1)], batch=40, seed=3)\n"
        "with ps.open(recipe, registry=ps.Registry(sys.argv[1]), threads=1, copies='always') as feed:\n"
        "    print(json.dumps([batch.digest for batch in feed]))\n"
    )
    command = [sys.executable, "-c", code, registry.url]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)]
    for process in started:
        out, _ = process.communicate(timeout=120)
        assert json.loads(out) == expected
    assert len(copies(registry)) == SHARDS
    assert list((tmp_path / "registry" / "work").iterdir()) == []
