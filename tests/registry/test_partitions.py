"""Partition folders become columns, wherever the folder is registered; versions without any keep their bytes."""

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset

import penstock as ps
from penstock import Policy, Registry
from penstock.registry.version import Version
from penstock.store import open_store


def write(path: Path, **row: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row) + "\n")


def fields(version: Version) -> dict[str, tuple[str, bool]]:
    return {field.name: (field.kind, field.optional) for field in version.schema}


def test_rows_are_those_of_the_engine_that_wrote_them(local: Registry, tmp_path: Path) -> None:
    """Goal: the same rows as the writer's own reader. Method: pyarrow writes and reads partitions of every kind."""
    table = pa.table(
        {
            "id": range(12),
            "year": [2024, 2025] * 6,
            "lang": ["en", "de", "a b/c=d%", None] * 3,
        }
    )
    kinds = pa.schema([("year", pa.int64()), ("lang", pa.string())])
    pyarrow.dataset.write_dataset(
        table,
        tmp_path / "table",
        format="parquet",
        partitioning=pyarrow.dataset.partitioning(kinds, flavor="hive"),
    )
    version = local.register("table", tmp_path / "table")
    read = pyarrow.dataset.dataset(tmp_path / "table", partitioning="hive").to_table().to_pylist()
    expected = {row["id"]: (row["year"], row["lang"]) for row in read}
    assert {row["id"]: (row["year"], row["lang"]) for row in version} == expected
    assert fields(version) == {
        "id": ("int", False),
        "year": ("int", False),
        "lang": ("string", True),
    }
    assert version.to_arrow().column_names == ["id", "year", "lang"]
    assert version.verify().ok
    assert version.account is not None
    assert version.account.notes == (
        "column 'year' comes from the folders year=…",
        "column 'lang' comes from the folders lang=…",
    )
    exported = local.export("table", "parquet", tmp_path / "exported")
    assert exported.take(range(12)) == version.take(range(12))


def test_the_version_is_the_same_wherever_it_is_registered(local: Registry, tmp_path: Path) -> None:
    for top in ("here", "there/deep"):
        for lang in ("en", "de"):
            write(tmp_path / top / f"lang={lang}/a.jsonl", id=lang)
    store = open_store(f"memory://{uuid.uuid4().hex}")
    for path in (tmp_path / "here").rglob("*.jsonl"):
        store.put_if_absent(str(path.relative_to(tmp_path / "here")), path.read_bytes())
    digests = {
        Registry(tmp_path / f"registry-{number}").register("web", place).digest
        for number, place in enumerate(
            (
                tmp_path / "here",
                tmp_path / "there",
                tmp_path / "here/*/*.jsonl",
                sorted((tmp_path / "here").rglob("*.jsonl")),
                store.url,
            )
        )
    }
    assert len(digests) == 1


def test_a_single_partition_is_a_column_if_its_folder_was_not_named(local: Registry, tmp_path: Path) -> None:
    write(tmp_path / "raw/lang=en/a.jsonl", id=1)
    assert local.register("a", tmp_path / "raw")[0] == {"id": 1, "lang": "en"}
    assert local.register("b", tmp_path / "raw/lang=*/a.jsonl")[0] == {"id": 1, "lang": "en"}
    # Named, it is a folder like any other, and the version is that of its files.
    alone = local.register("c", tmp_path / "raw/lang=en")
    assert alone[0] == {"id": 1}
    assert alone.digest == local.register("d", tmp_path / "raw/lang=en/a.jsonl").digest


def test_whole_numbers_need_all_to_be_some(local: Registry, tmp_path: Path) -> None:
    for value in ("01", "2", "__HIVE_DEFAULT_PARTITION__"):
        write(tmp_path / f"numbers/p={value}/a.jsonl", id=value)
    assert [row["p"] for row in local.register("numbers", tmp_path / "numbers")] == [1, 2, None]
    for value in ("01", "2", "x"):
        write(tmp_path / f"texts/p={value}/a.jsonl", id=value)
    assert [row["p"] for row in local.register("texts", tmp_path / "texts")] == ["01", "2", "x"]


def test_a_column_of_the_files_is_kept_and_said(local: Registry, tmp_path: Path) -> None:
    write(tmp_path / "raw/lang=en/a.jsonl", id=1, lang="en-GB")
    write(tmp_path / "raw/lang=de/a.jsonl", id=2, lang="de-AT")
    version = local.register("web", tmp_path / "raw")
    assert [row["lang"] for row in version] == ["de-AT", "en-GB"]
    assert version.account is not None
    assert version.account.notes == ("column 'lang' is that of the files; the folders lang=… are not used",)


def test_shards_without_a_partition_make_it_optional(local: Registry, tmp_path: Path) -> None:
    write(tmp_path / "raw/lang=en/a.jsonl", id=1)
    write(tmp_path / "raw/b.jsonl", id=2)
    version = local.register("web", tmp_path / "raw")
    assert list(version) == [{"id": 2}, {"id": 1, "lang": "en"}]
    assert fields(version)["lang"] == ("string", True)


def test_a_difference_sees_folders_that_changed(local: Registry, tmp_path: Path) -> None:
    write(tmp_path / "a/x/lang=en/a.jsonl", id=1)
    write(tmp_path / "a/x/lang=de/a.jsonl", id=2)
    local.register("web", tmp_path / "a")
    write(tmp_path / "b/x/lang=en/a.jsonl", id=1)
    write(tmp_path / "b/x/lang=fr/a.jsonl", id=2)
    local.register("web", tmp_path / "b")
    difference = local.diff("web@1", "web@2")
    assert not difference.equal
    assert (difference.rows_added, difference.rows_removed) == (1, 1)


def test_csv_and_text_have_partitions_too(local: Registry, tmp_path: Path) -> None:
    for lang in ("en", "de"):
        (tmp_path / f"csv/lang={lang}").mkdir(parents=True)
        (tmp_path / f"csv/lang={lang}/a.csv").write_text("id,text\n1,x\n2,y\n")
        (tmp_path / f"text/lang={lang}").mkdir(parents=True)
        (tmp_path / f"text/lang={lang}/a.txt").write_text("one\ntwo\n")
    rows = list(local.register("csv", tmp_path / "csv", policy=Policy(strict=True)))
    assert rows[0] == {"id": 1, "text": "x", "lang": "de"}
    assert list(local.register("text", tmp_path / "text"))[3] == {"text": "two", "lang": "en"}


def test_a_recipe_filters_and_delivers_partitions(local: Registry, tmp_path: Path) -> None:
    for lang in ("en", "de"):
        write(tmp_path / f"raw/lang={lang}/a.jsonl", id=1, text=lang)
        write(tmp_path / f"raw/lang={lang}/b.jsonl", id=2, text=lang)
    local.register("web", tmp_path / "raw")
    recipe = ps.Recipe(sources=[ps.Source("web", stages=[ps.Filter("lang == 'en'")])], batch=2)
    with ps.open(recipe, registry=local) as feed:
        batch = next(iter(feed))
    assert (list(batch["lang"]), list(batch["text"])) == (["en", "en"], ["en", "en"])
