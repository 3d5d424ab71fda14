"""Folders that other tools manage: tables with a log, datasets of the Hub with configurations, clones without their data."""

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Policy, Registry, errors
from penstock.registry.selection.hub_card import file_patterns
from penstock.store import open_store
from tests.registry.folders import write_rows
from tests.registry.test_selection import ids, left_out

#: What the writers of these tables leave beside their data.
TABLES = {
    "Delta Lake": ("_delta_log/00000000000000000000.json", "part-0.snappy.parquet"),
    "Iceberg": (
        "metadata/00003-fc51b7f1-1684-48ba-a24a-9b2502b16f4d.metadata.json",
        "data/00000-0-e92968ac-d7dc-426f-96a9-63c2b2e665b8.parquet",
    ),
    "Hudi": (".hoodie/hoodie.properties", "lang=en/part-0.parquet"),
    "Lance": ("_versions/18446744073709551613.manifest", "data/0101100001.lance"),
}
LFS = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
ANNEX = "/annex/objects/SHA256E-s16--5472948e7ac5c4417b2ac9159d2c17c3.jsonl\n"


def write_parquet(path: Path, first: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [first, first + 1]}), path)
    return path


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("owner", TABLES)
def test_a_table_with_a_log_is_never_taken_for_plain_files(
    local: Registry, tmp_path: Path, owner: str
) -> None:
    """Goal: rows deleted from a table do not come back. Method: name the table, the folder above, one inside, and a pattern."""
    mark, data = TABLES[owner]
    table = tmp_path / "lake/table"
    write_text(table / mark, "{}")
    write_parquet(table / data, 0)
    inside = (table / data).parent
    for place in (table, tmp_path / "lake", inside, inside / "*", table / "**/*"):
        with pytest.raises(errors.FileUnusable, match=f"table of {owner}"):
            local.register("a", place, format="parquet")
    # A file that is named is meant.
    assert ids(local.register("a", table / data, format="parquet")) == [0, 1]


def test_a_table_on_a_store_is_refused_too(s3_bucket: str, tmp_path: Path) -> None:
    s3 = f"{s3_bucket}/{uuid.uuid4().hex}"
    store = open_store(f"{s3}/lake")
    data = write_parquet(tmp_path / "a.parquet", 0).read_bytes()
    store.put_if_absent("table/_delta_log/00000000000000000000.json", b"{}")
    store.put_if_absent("table/lang=en/part-0.parquet", data)
    store.put_if_absent("plain/metadata/v1.json", b"{}")
    store.put_if_absent("plain/lang=en/part-0.parquet", data)
    registry = Registry(f"{s3}/registry")
    for place in ("", "/table", "/table/lang=en", "/table/*/*.parquet"):
        with pytest.raises(errors.FileUnusable, match="table of Delta Lake"):
            registry.register("a", f"{s3}/lake{place}")
    assert ids(registry.register("a", f"{s3}/lake/plain/lang=en")) == [0, 1]


@pytest.mark.parametrize("name", ["b.txt", "b.md", "b.jpg", "b.jsonl", "b.parquet"])
@pytest.mark.parametrize(("pointer", "owner"), [(LFS, "Git LFS"), (ANNEX, "git-annex")], ids=["lfs", "annex"])
def test_one_pointer_among_many_files_is_found(
    local: Registry, tmp_path: Path, name: str, pointer: str, owner: str
) -> None:
    """Goal: a pointer is never a row. Method: it is the last of many files, so that no sample of them would have it."""
    real = {
        "b.txt": "text\n",
        "b.md": "# Text\n",
        "b.jpg": "\u00ff\u00d8\u00ff\u00e0",
        "b.jsonl": '{"id": 1}\n',
    }
    ending = name.removeprefix("b")
    for number in range(50):
        path = tmp_path / f"data/a{number:03}{ending}"
        if ending == ".parquet":
            write_parquet(path, number)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(real[name].encode("latin-1"))
    write_text(tmp_path / "data" / name, pointer)
    with pytest.raises(errors.FileUnusable, match=f"{name}: it is a pointer of {owner}") as caught:
        local.register("a", tmp_path / "data")
    assert "git" in (caught.value.hint or "")


def test_pointers_of_dvc_are_named_and_never_rows(local: Registry, tmp_path: Path) -> None:
    pointer = write_text(
        tmp_path / "train.jsonl.dvc",
        "outs:\n- md5: 5472948e7ac5c4417b2ac9159d2c17c3\n  size: 16\n  path: train.jsonl\n",
    )
    with pytest.raises(errors.FileUnusable, match="pointer of DVC"):
        local.register("a", pointer)
    with pytest.raises(errors.NothingToRegister, match="dvc pull"):
        local.register("a", tmp_path)
    write_rows(tmp_path / "other.jsonl", 0, 2)
    assert "dvc pull" in left_out(local.register("a", tmp_path))["train.jsonl.dvc"]


def card(**configs: dict[str, Any]) -> str:
    """A README as the Hub's own library writes it."""
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCard, DatasetCardData

    data = DatasetCardData(license="cc0-1.0", language=["en"])
    MetadataConfigs(configs).to_dataset_card_data(data)
    return str(DatasetCard(f"---\n{data}\n---\n# A dataset\n"))


def test_configurations_of_the_hub_are_not_mixed(local: Registry, tmp_path: Path) -> None:
    """Goal: no row twice, no language by accident. Method: a card with a sample beside the whole, as large corpora have it."""
    write_parquet(tmp_path / "web/data/part-1/0.parquet", 0)
    write_parquet(tmp_path / "web/sample/0.parquet", 0)
    everything = {"data_files": "data/*/*.parquet"}
    write_text(
        tmp_path / "web/README.md", card(default=everything, sample={"data_files": ["sample/*.parquet"]})
    )
    for place in (tmp_path / "web", tmp_path):
        with pytest.raises(errors.ConfigsMixed) as caught:
            local.register("web", place)
        assert caught.value.configs == {"default": ["data/*/*.parquet"], "sample": ["sample/*.parquet"]}
        assert f"{tmp_path}/web/data/*/*.parquet" in (caught.value.hint or "")
    assert ids(local.register("web", tmp_path / "web/data/*/*.parquet")) == [0, 1]
    # One configuration that has all files is what the folder is anyway.
    write_text(
        tmp_path / "web/README.md",
        card(default={"data_files": "**/*.parquet"}, sample={"data_dir": "sample"}),
    )
    assert len(local.register("web", tmp_path / "web")) == 4


def test_splits_on_a_card_count_whatever_files_are_called(local: Registry, tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", 0, 2)
    write_rows(tmp_path / "b.jsonl", 2, 3)
    parts = [{"split": "clean", "path": "a.jsonl"}, {"split": "noisy", "path": ["b.jsonl"]}]
    write_text(tmp_path / "README.md", card(default={"data_files": parts}))
    with pytest.raises(errors.SplitsMixed) as caught:
        local.register("a", tmp_path)
    assert list(caught.value.splits) == ["clean", "noisy"]
    assert ids(local.register("a", tmp_path, policy=Policy(split="noisy"))) == [2, 3, 4]


@pytest.mark.parametrize(
    "configs",
    [
        {"en": {"data_files": "en/*"}, "de": {"data_dir": "de"}},
        {"a b: c": {"data_files": [{"split": "train", "path": ["x/**", "y's.csv"]}], "default": True}},
        {"1": {"data_files": ["*.csv", "[0-9].csv", "a # b.csv"]}},
    ],
)
def test_cards_mean_what_yaml_means(configs: dict[str, dict[str, Any]]) -> None:
    patterns = file_patterns(card(**configs))
    expected = []
    for name, config in configs.items():
        data_files = config.get("data_files", "**")
        for entry in data_files if isinstance(data_files, list) else [data_files]:
            split, paths = (entry["split"], entry["path"]) if isinstance(entry, dict) else ("", entry)
            for path in paths if isinstance(paths, list) else [paths]:
                below = f"{config['data_dir']}/{path}" if "data_dir" in config else path
                expected.append((name, split, below))
    assert sorted((pattern.config, pattern.split, pattern.pattern) for pattern in patterns) == sorted(
        expected
    )


def test_what_is_no_card_says_nothing() -> None:
    for text in (
        "",
        "# Title\nconfigs:\n- a",
        "---\nconfigs: [{config_name: a}]\n---\n",
        "---\nconfigs:\n- config_name: a\n",
    ):
        assert file_patterns(text) == []


def test_parts_that_did_not_arrive_are_said(local: Registry, tmp_path: Path) -> None:
    for number in (0, 2):
        write_parquet(tmp_path / f"data/web-{number:05}-of-00004.parquet", number)
    version = local.register("a", tmp_path / "data")
    assert left_out(version) == {"web-*-of-00004": "2 of these 4 files are not here: 00001, 00003"}
    with pytest.raises(errors.FilesLeftOut):
        local.register("a", tmp_path / "data", policy=Policy(strict=True))
    # A pattern names those that are meant, and a whole set has nothing to say.
    assert left_out(local.register("a", tmp_path / "data/*.parquet")) == {}
    for number in (1, 3):
        write_parquet(tmp_path / f"data/web-{number:05}-of-00004.parquet", number)
    assert left_out(local.register("a", tmp_path / "data")) == {}


def test_equal_files_of_a_cache_are_each_taken(local: Registry, tmp_path: Path) -> None:
    """Goal: a download gives the version that its files give. Method: two equal files, behind links to one blob and as they are."""
    plain, hub = tmp_path / "plain", tmp_path / "hub/datasets--acme--web"
    for name in ("en/a.jsonl", "de/a.jsonl"):
        data = write_rows(plain / name, 0, 2).read_bytes()
        blob = hub / "blobs" / hashlib.sha256(data).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link = hub / "snapshots/5e1f6b3" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    expected = local.register("plain", plain)
    assert len(expected) == 4
    for place in (hub, hub / "snapshots", hub / "snapshots/5e1f6b3", tmp_path / "hub"):
        assert list(local.register("web", place)) == list(expected), place
    (hub / "snapshots/0a1b2c3").mkdir()
    for place in (hub, hub / "snapshots", tmp_path / "hub"):
        with pytest.raises(errors.FileUnusable, match="2 revisions"):
            local.register("web", place)


def test_an_ordinary_folder_called_metadata_is_no_table(local: Registry, tmp_path: Path) -> None:
    write_text(tmp_path / "metadata/about.json", json.dumps({"id": 0}))
    write_parquet(tmp_path / "data/a.parquet", 5)
    assert ids(local.register("a", tmp_path, format="parquet")) == [5, 6]


def test_descriptions_whose_data_is_gone_are_no_rows(local: Registry, tmp_path: Path) -> None:
    """Goal: a description is never data. Method: what `datasets` and `streaming` write, without its data files."""
    import datasets

    parts = {
        "train": datasets.Dataset.from_dict({"id": [1, 2]}),
        "test": datasets.Dataset.from_dict({"id": [3]}),
    }
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    for arrow in (tmp_path / "saved").rglob("*.arrow"):
        arrow.unlink()
    for place in (tmp_path / "saved", tmp_path / "saved/train"):
        with pytest.raises(errors.NothingToRegister) as caught:
            local.register("a", place)
        assert "a description of the dataset" in caught.value.left_out.values()
    # What an MDSWriter leaves that was given no sample.
    write_text(tmp_path / "mds/index.json", '{"shards": [], "version": 2}')
    with pytest.raises(errors.FileUnusable, match="expected a mds file"):
        local.register("a", tmp_path / "mds")
    # Nothing but READMEs is a corpus of them.
    for name in ("one", "two"):
        write_text(tmp_path / f"readmes/{name}/README.md", f"# {name}\n")
    assert len(local.register("a", tmp_path / "readmes")) == 2


def test_shards_that_an_index_lists_and_that_did_not_arrive_are_said(local: Registry, tmp_path: Path) -> None:
    local.register("rows", write_rows(tmp_path / "rows.jsonl", 0, 4))
    local.export("rows", "mds", tmp_path / "mds")
    (shard,) = (tmp_path / "mds").rglob("*.mds")
    folder = shard.parent
    index = json.loads((folder / "index.json").read_text())
    second = json.loads(json.dumps(index["shards"][0]).replace(shard.name, "shard.00001.mds"))
    index["shards"].append(second)
    write_text(folder / "index.json", json.dumps(index))
    version = local.register("a", folder)
    assert left_out(version) == {"shard.00001.mds": "it is not here, though index.json lists it"}
    (folder / "shard.00001.mds").write_bytes(shard.read_bytes())
    whole = local.register("a", folder)
    assert left_out(whole) == {}
    assert ids(whole) == [0, 1, 2, 3] * 2


def test_an_index_of_litdata_is_no_row(local: Registry, tmp_path: Path) -> None:
    """Goal: a folder of LitData is refused as what it is. Method: index and chunks as its writer leaves them."""
    index = {
        "chunks": [{"chunk_bytes": 28, "chunk_size": 1, "dim": None, "filename": "chunk-0-0.bin"}],
        "config": {"chunk_bytes": 64_000_000, "compression": None, "data_format": ["str"]},
        "updated_at": "1724000000.0",
    }
    path = write_text(tmp_path / "raw/index.json", json.dumps(index))
    (tmp_path / "raw/chunk-0-0.bin").write_bytes(b"\1\0\0\0\x0c\0\0\0\x14\0\0\0\4\0\0\0item")
    with pytest.raises(errors.FileUnusable, match="a dataset of LitData") as caught:
        local.register("web", tmp_path / "raw")
    assert caught.value.path == str(tmp_path / "raw")
    # Whoever names the file means it.
    assert local.register("web", path)[0] == index
