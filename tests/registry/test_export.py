"""Exports hold equal rows, name what they came from, and are read by the peers' own readers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock import Registry, errors
from penstock.registry.copies.export import export_version
from penstock.registry.tokenize.tokens import TokenLength
from tests.registry.conftest import WriteRows
from tests.registry.test_measuring import write_tokenizer


@pytest.mark.parametrize("target", ["parquet", "jsonl.zst", "mds"])
def test_exported_rows_are_equal(local: Registry, write_rows: WriteRows, tmp_path: Path, target: str) -> None:
    write_rows("a.jsonl", 0, 1500, score=0.5, tags=["x", "y"], more={"k": 1})
    write_rows("b.jsonl", 1500, 1100, score=0.25, tags=[], more={"k": 2})
    version = local.register("web", tmp_path / "raw")

    exported = export_version(local, version, target, tmp_path / "out", rows_per_shard=1000)

    assert len(exported.manifest.shards) == 3
    assert exported.take(range(exported.rows)) == version.take(range(version.rows))
    assert exported.about.derived_from == (version.digest,)
    assert local.lineage(exported.address).parents[0].address == "web@1"
    assert exported.verify().ok


#: Opens what an index lists, with the peer's own readers, as its dataset does.
_STREAM = """
import json, sys
from tests.formats.mosaic import bare_packages
bare_packages("streaming", "streaming.base")
from streaming.base.format import reader_from_json
index = json.load(open(sys.argv[1] + "/index.json"))
assert index["version"] == 2
readers = [reader_from_json(sys.argv[1], None, shard) for shard in index["shards"]]
print(json.dumps([reader[number] for reader in readers for number in range(reader.samples)]))
"""


def test_the_peer_opens_an_export_to_mds(
    local: Registry, root: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    version = local.register("web", write_rows("a.jsonl", 0, 250, score=0.5, more={"k": 1}))
    export_version(local, version, "mds", tmp_path / "out", rows_per_shard=100)
    command = [sys.executable, "-W", "ignore", "-c", _STREAM, str(tmp_path / "out")]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == list(version)


# The peer's reader leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_webdataset_keeps_rows_below_keys(local: Registry, write_rows: WriteRows, tmp_path: Path) -> None:
    import webdataset

    version = local.register("web", write_rows("a.jsonl", 0, 50))
    exported = local.export("web", "webdataset", tmp_path / "out", name="tarred")
    assert exported.address == "tarred@1"
    assert [row["json"] for row in exported] == list(version)
    assert [row["__key__"] for row in exported][:2] == ["000000000000", "000000000001"]
    archive = next((tmp_path / "out").iterdir())
    theirs = list(webdataset.WebDataset(str(archive), shardshuffle=False).decode())
    assert [sample["json"] for sample in theirs] == list(version)


def test_tokens_become_megatron_files_and_come_back(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    local.register("web", write_rows("a.jsonl", 0, 200))
    local.measure("web", TokenLength(write_tokenizer(tmp_path / "tokenizer.json")))
    (tokens,) = [name for name in local.datasets() if "tokens" in name]
    exported = local.export(tokens, "bin-idx", tmp_path / "out", name="megatron")
    for ours, theirs in zip(local.resolve(tokens), exported, strict=True):
        np.testing.assert_array_equal(ours["tokens"], theirs["tokens"])
    assert exported[0]["tokens"].dtype == np.uint16
    back = local.export("megatron", "mds", tmp_path / "mds")
    np.testing.assert_array_equal(back[7]["tokens"], exported[7]["tokens"])


def test_bytes_travel_through_formats_that_hold_them(local: Registry, tmp_path: Path) -> None:
    import io
    import tarfile

    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number in range(20):
            for name, data in ((f"{number:03d}.bin", bytes([number]) * 100), (f"{number:03d}.cls", b"7")):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    version = local.register("photos", tmp_path / "a.tar")
    parquet = local.export("photos", "parquet", tmp_path / "parquet")
    assert list(parquet) == list(version)
    again = local.export(parquet.address, "webdataset", tmp_path / "again", name="again")
    assert list(again) == list(version)
    with pytest.raises(errors.FileUnusable, match="row 0 has bytes in field 'bin'"):
        local.export("photos", "jsonl.zst", tmp_path / "json")
    assert list((tmp_path / "json").iterdir()) == []


def test_nothing_is_overwritten_and_nonsense_is_refused(
    local: Registry, write_rows: WriteRows, tmp_path: Path
) -> None:
    version = local.register("web", write_rows("a.jsonl"))
    with pytest.raises(errors.UsageError, match="is not empty"):
        local.export("web", "parquet", tmp_path / "raw")
    with pytest.raises(errors.UsageError, match="got 'xlsx'"):
        local.export("web", "xlsx", tmp_path / "out")
    with pytest.raises(errors.UsageError, match="one field of tokens"):
        local.export("web", "bin-idx", tmp_path / "out2")
    with pytest.raises(errors.UsageError, match="at least one row"):
        export_version(local, version, "parquet", tmp_path / "out3", rows_per_shard=0)


def test_fields_are_left_out_of_an_export_only_by_name(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    (tmp_path / "some.jsonl").write_text('{"id": 1, "tokens": [5, 6]}\n{"id": 2, "tokens": [7]}\n')
    registry.register("some", tmp_path / "some.jsonl")
    with pytest.raises(errors.UsageError, match="holds one field of tokens") as raised:
        registry.export("some@1", "bin-idx", tmp_path / "all")
    assert "fields" in str(raised.value.hint)
    with pytest.raises(errors.UsageError, match="unknown fields: tokns"):
        registry.export("some@1", "bin-idx", tmp_path / "wrong", fields=["tokns"])

    exported = registry.export("some@1", "bin-idx", tmp_path / "chosen", fields=["tokens"])

    assert [row["tokens"].tolist() for row in exported] == [[5, 6], [7]]
