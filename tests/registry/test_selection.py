"""Which files of a folder are taken, what is said about the others, and that nothing is mixed by accident."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock import Policy, Registry, errors
from penstock.formats.media import files
from penstock.registry.version import Version
from tests.registry import folders
from tests.registry.folders import write_rows


def left_out(version: Version) -> dict[str, str]:
    assert version.account is not None
    return {omission.name: omission.reason for omission in version.account.left_out}


def shards(version: Version) -> list[str]:
    return [shard.name for shard in version.manifest.shards]


def ids(version: Version) -> list[int]:
    return [row["id"] for row in version]


def test_a_snapshot_of_the_hub_asks_which_split(local: Registry, tmp_path: Path) -> None:
    repository = folders.hub_snapshot(tmp_path)
    snapshot = repository / "snapshots/5e1f6b3"
    with pytest.raises(errors.SplitsMixed) as caught:
        local.register("chat", snapshot)
    assert {name: len(files) for name, files in caught.value.splits.items()} == {"test": 1, "train": 2}
    assert "--split" in (caught.value.hint or "")

    train = local.register("chat", snapshot, policy=Policy(split="train"))
    assert ids(train) == list(range(60))
    assert train.account is not None
    assert train.account.files == 2
    assert left_out(train) == {
        ".gitattributes": "hidden: its name begins with a dot",
        "README.md": "a description of the dataset",
        "data/test-00000-of-00001.parquet": "of the split test",
    }
    both = local.register("both", snapshot, policy=Policy(split="all"))
    assert [row["split"] for row in both.take([0, 12, 71])] == ["test", "train", "train"]
    assert {field.name: field.kind for field in both.schema}["split"] == "string"
    # The cache of the Hub holds the same bytes twice; its one revision is meant.
    assert local.register("whole", repository, policy=Policy(split="train")).digest == train.digest
    (repository / "snapshots/0a1b2c3").mkdir()
    with pytest.raises(errors.FileUnusable, match="2 revisions"):
        local.register("whole", repository)


@pytest.mark.parametrize("ending", ["png", "md"])
def test_folders_of_files_have_splits_as_tables_have(
    local: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Goal: no mixture by accident, and a field where all are asked for. Method: folders as ImageFolder has them, with attributes and a
    file that is of no split; shards of two files, so that a split is several of them."""
    monkeypatch.setattr(files, "MEMBERS_MAX", 2)
    top = tmp_path / "pictures"
    expected: dict[str, str | None] = {f"extra.{ending}": None}
    for folder, split, count in (("train", "train", 5), ("test", "test", 1), ("val", "validation", 3)):
        (top / folder).mkdir(parents=True)
        names = [f"{number}.{ending}" for number in range(count)]
        expected |= {f"{folder}/{name}": split for name in names}
        (top / folder / "metadata.csv").write_text("file_name,n\n" + "".join(f"{name},7\n" for name in names))
    for name in expected:
        (top / name).write_bytes(b"\x89PNG\r\n\x1a\n" + name.encode() if ending == "png" else name.encode())
    with pytest.raises(errors.SplitsMixed) as caught:
        local.register("pictures", top)
    assert set(caught.value.splits) == {"train", "test", "validation"}
    both = local.register("both", top, policy=Policy(split="all"))
    assert {row["path"]: row.get("split") for row in both} == expected
    assert [row["path"] for row in both] == sorted(expected)
    assert {field.name: field.optional for field in both.schema}["split"] is True
    assert all(row["n"] == 7 for row in both if "/" in row["path"])
    assert (
        both.digest == Registry(tmp_path / "other").register("both", top, policy=Policy(split="all")).digest
    )
    train = local.register("train", top, policy=Policy(split="train"))
    # One split is what its folder is alone: the same rows, the same version, no further field.
    assert train.digest == local.register("folder", top / "train").digest
    assert "split" not in train[0]
    monkeypatch.setattr(files, "GROUPS_MAX", 3)
    with pytest.raises(errors.FileUnusable, match="change between splits 3 times"):
        local.register("both", top, policy=Policy(split="all"))


def test_splits_saved_to_disk_are_not_mixed(local: Registry, tmp_path: Path) -> None:
    import datasets

    parts = {
        name: datasets.Dataset.from_dict({"id": list(range(first, first + 5))})
        for name, first in (("sft", 0), ("rl", 5))
    }
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(errors.SplitsMixed) as caught:
        local.register("saved", tmp_path / "saved")
    assert set(caught.value.splits) == {"sft", "rl"}
    one = local.register("sft", tmp_path / "saved", policy=Policy(split="sft"))
    assert ids(one) == list(range(5))
    assert one.digest == local.register("folder", tmp_path / "saved/sft").digest
    both = local.register("both", tmp_path / "saved", policy=Policy(split="all"))
    assert {row["id"]: row["split"] for row in both} == {n: "sft" if n < 5 else "rl" for n in range(10)}
    # What `map` leaves beside the data is not data.
    loaded = datasets.load_from_disk(str(tmp_path / "saved/sft"))
    loaded.map(lambda row: {"id": row["id"] + 100}, load_from_cache_file=False)
    caches = sorted((tmp_path / "saved/sft").glob("cache-*.arrow"))
    assert caches
    again = local.register("sft", tmp_path / "saved/sft")
    assert again.digest == one.digest
    assert left_out(again)[caches[0].name] == "a cache of Hugging Face datasets"


@pytest.mark.parametrize(
    "names",
    [
        ("train.jsonl", "test.jsonl"),
        ("train/0.jsonl", "validation/0.jsonl"),
        ("en/train_0.jsonl", "en/dev_0.jsonl"),
        ("train_sft-00000-of-00001.jsonl", "test_sft-00000-of-00001.jsonl"),
        ("wiki.train.tokens.jsonl", "wiki.valid.tokens.jsonl"),
        ("corpus.jsonl", "test.jsonl"),
        ("part-0.jsonl", "heldout/val/part-0.jsonl"),
    ],
)
def test_names_that_say_a_split_are_asked_about(
    local: Registry, tmp_path: Path, names: tuple[str, str]
) -> None:
    for number, name in enumerate(names):
        write_rows(tmp_path / "raw" / name, number * 10, 10)
    with pytest.raises(errors.SplitsMixed):
        local.register("web", tmp_path / "raw")
    # What is named, or found by a pattern, is meant.
    assert local.register("web", [tmp_path / "raw" / name for name in names]).rows == 20
    assert local.register("web", tmp_path / "raw/**/*.jsonl").rows == 20


@pytest.mark.parametrize(
    "names",
    [
        ("train-0.jsonl", "more.jsonl"),
        ("test-0.jsonl", "test-1.jsonl"),
        ("contest.jsonl", "latest.jsonl"),
        ("intro.md", "test.md"),
        ("data.jsonl", "README.test.md"),
    ],
)
def test_names_that_mix_nothing_are_not_asked_about(
    local: Registry, tmp_path: Path, names: tuple[str, str]
) -> None:
    for number, name in enumerate(names):
        write_rows(tmp_path / "raw" / name, number * 10, 10)
    assert local.register("web", tmp_path / "raw").rows


def test_files_that_say_no_split_have_none(local: Registry, tmp_path: Path) -> None:
    write_rows(tmp_path / "raw/corpus.jsonl", 0, 2)
    write_rows(tmp_path / "raw/test.jsonl", 2, 1)
    with pytest.raises(errors.SplitsMixed, match=r"files that say none \(files: 1\): test \(files: 1\)"):
        local.register("web", tmp_path / "raw")
    everything = local.register("web", tmp_path / "raw", policy=Policy(split="all"))
    assert [row.get("split") for row in everything] == [None, None, "test"]
    assert everything.account is not None
    assert everything.account.notes == ("column 'split' comes from names of files and folders",)


def test_a_wrong_split_names_those_there_are(local: Registry, tmp_path: Path) -> None:
    write_rows(tmp_path / "raw/train.jsonl", 0, 1)
    with pytest.raises(errors.UsageError, match="no split 'tset'") as caught:
        local.register("web", tmp_path / "raw", policy=Policy(split="tset"))
    assert "train" in (caught.value.hint or "")


def test_what_an_engine_writes_beside_parts_is_left_out(local: Registry, tmp_path: Path) -> None:
    version = local.register("events", folders.spark_output(tmp_path))
    assert shards(version) == [
        "lang=de/part-0.snappy.parquet",
        "lang=en/part-1.snappy.parquet",
    ]
    assert [(row["id"], row["lang"]) for row in version.take([0, 49])] == [(0, "de"), (49, "en")]
    assert left_out(version) == {
        "._SUCCESS.crc": "hidden: its name begins with a dot",
        "_SUCCESS": "a mark of the engine that wrote the folder",
        "_temporary/0/task_7/part-7.snappy.parquet": "unfinished output of an engine",
        "lang=de/.part-0.snappy.parquet.crc": "hidden: its name begins with a dot",
        "lang=en/.part-1.snappy.parquet.crc": "hidden: its name begins with a dot",
        "lang=en/.part-2.snappy.parquet.crc": "hidden: its name begins with a dot",
        "lang=en/part-2.snappy.parquet": "it has no rows",
    }


def test_backups_and_temporary_files_are_no_rows(local: Registry, tmp_path: Path) -> None:
    """Goal: no row comes twice because an editor kept the file as it was. Method: the names that editors, patch, rsync and people
    give to copies, beside the file itself, in a folder and behind a pattern; a copy that is named itself is taken."""
    beside = {
        "#a.jsonl#": "a backup of another file",
        "a.jsonl.bak": "a backup of another file",
        "a.jsonl.old": "a backup of another file",
        "a.jsonl.orig": "a backup of another file",
        "a.jsonl.tmp": "a temporary file",
        "a.jsonl~": "a backup of another file",
    }
    for name in ("a.jsonl", *beside):
        write_rows(tmp_path / "raw" / name, 0, 3)
    for place in (tmp_path / "raw", tmp_path / "raw/*"):
        version = local.register("web", place)
        assert (shards(version), left_out(version)) == (["a.jsonl"], beside)
    assert shards(local.register("web", tmp_path / "raw/a.jsonl.bak")) == ["a.jsonl.bak"]
    with pytest.raises(errors.FilesLeftOut, match="a backup of another file"):
        local.register("web", tmp_path / "raw", policy=Policy(strict=True))


def test_links_are_followed_and_files_taken_once(local: Registry, tmp_path: Path) -> None:
    tree = folders.rsynced_tree(tmp_path)
    version = local.register("corpus", tree)
    assert shards(version) == ["2024/a-copy.jsonl", "2025/b.jsonl", "books/c.jsonl"]
    assert sorted(ids(version)) == list(range(30))
    assert left_out(version) == {
        "2024/a.jsonl": "the same file as a-copy.jsonl",
        "2025/d.jsonl": "a link to /mnt/other/d.jsonl, which is not there",
        "2025/up": "a link to a folder above it",
        "current": "a link to 2025, whose files are taken already",
        "queue": "a FIFO, not a file",
    }
    # A pattern reaches the same files through the same links, and ends.
    assert sorted(ids(local.register("corpus", f"{tree}/**/*.jsonl"))) == list(range(30))
    with pytest.raises(errors.FilesLeftOut) as caught:
        local.register("corpus", tree, policy=Policy(strict=True))
    assert set(caught.value.left_out) == set(left_out(version))
    assert "5 would be left out" in str(caught.value)


def test_what_is_no_file_is_refused_instead_of_read(local: Registry, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.jsonl"))
        for place, kind in (
            (tmp_path / "pipe.jsonl", "FIFO"),
            (tmp_path / "socket.jsonl", "socket"),
            (Path("/dev/zero"), "device"),
        ):
            with pytest.raises(errors.FileUnusable, match=kind) as caught:
                local.register("web", place)
            assert "to a file" in (caught.value.hint or "")
        with pytest.raises(errors.NothingToRegister, match="a FIFO, not a file"):
            local.register("web", tmp_path / "*.jsonl")
    (tmp_path / "gone.jsonl").symlink_to("nowhere")
    with pytest.raises(errors.FileUnusable, match="a link to nowhere, which is not there"):
        local.register("web", tmp_path / "gone.jsonl")


def test_strict_takes_everything_or_nothing(local: Registry, tmp_path: Path) -> None:
    write_rows(tmp_path / "raw/a.jsonl", 0, 5)
    strict = Policy(strict=True)
    version = local.register("web", tmp_path / "raw", policy=strict)
    assert version.account is not None
    assert version.account.to_json() == {
        "files": 1,
        "bytes": version.bytes,
        "left_out": (),
        "notes": (),
    }
    (tmp_path / "raw/empty.jsonl").touch()
    with pytest.raises(errors.FilesLeftOut, match=r"empty\.jsonl: it is empty"):
        local.register("web", tmp_path / "raw", policy=strict)
    # A gzip of nothing is only seen to have no rows when it is read.
    (tmp_path / "raw/empty.jsonl").unlink()
    import gzip

    (tmp_path / "raw/b.jsonl.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(errors.FilesLeftOut, match=r"b\.jsonl\.gz: it has no rows"):
        local.register("web", tmp_path / "raw", policy=strict)
    assert local.register("web", tmp_path / "raw").digest == version.digest


def test_a_named_file_is_never_left_out(local: Registry, tmp_path: Path) -> None:
    write_rows(tmp_path / "raw/a.jsonl", 0, 5)
    write_rows(tmp_path / "raw/README.jsonl", 5, 5)
    write_rows(tmp_path / "raw/.hidden.jsonl", 10, 5)
    (tmp_path / "raw/empty.jsonl").touch()
    assert local.register("web", tmp_path / "raw").rows == 5
    assert local.register("web", [tmp_path / "raw/README.jsonl", tmp_path / "raw"]).rows == 10
    assert local.register("web", tmp_path / "raw/.hidden.jsonl").rows == 5
    with pytest.raises(errors.FileEmpty):
        local.register("web", [tmp_path / "raw/empty.jsonl", tmp_path / "raw"])


def test_several_formats_are_a_question_and_never_bytes(local: Registry, tmp_path: Path) -> None:
    mixed = folders.mixed_folder(tmp_path)
    with pytest.raises(errors.FormatsMixed) as caught:
        local.register("mixed", mixed)
    assert {name: len(files) for name, files in caught.value.formats.items()} == {"parquet": 1, "jsonl": 3}
    assert "--format" in (caught.value.hint or "")
    version = local.register("mixed", mixed, format="jsonl")
    assert ids(version) == list(range(30))
    assert left_out(version) == {
        "README.txt": "a description of the dataset",
        "extra.parquet": "parquet, not jsonl",
        "part-3.jsonl": "it is empty",
        "weights.dat": "of no known format",
    }
    # Pictures and the file that describes them belong together.
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    (tmp_path / "photos/metadata.jsonl").write_text('{"file_name": "a.png", "label": 3}\n')
    assert local.register("photos", tmp_path / "photos")[0]["label"] == 3


@pytest.mark.parametrize(
    ("name", "data", "way"),
    [
        ("train.bin", b"\x05\0\x07\0" * 50, "--dtype uint16"),
        ("main.rs", b"fn main() {}\n", "--per file"),
        ("table.csv", b"a,a\n1,2\n", "--format csv"),
        ("words.jsonl", b'"a"\n"b"\n', "--format jsonl"),
        ("all.zip", b"PK\x03\x04" + bytes(40), "unpack"),
        ("file.dat", bytes(range(256)), "say which with --format: npy, "),
        ("words.txt", "words\n".encode("utf-16-le"), "byte order mark"),
    ],
)
def test_a_file_of_no_known_format_has_a_way_on(
    local: Registry, tmp_path: Path, name: str, data: bytes, way: str
) -> None:
    """Goal: the hint is the option that helps. Method: what people have and nothing recognises, by kind."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(errors.FileUnusable, match="of no known format") as caught:
        local.register("web", tmp_path / name)
    assert way in (caught.value.hint or "")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_lines_of_utf_16_without_a_mark_are_named(local: Registry, tmp_path: Path, encoding: str) -> None:
    for name, text in (("a.jsonl", '{"id": 1}\n'), ("a.csv", "id,text\n1,x\n")):
        (tmp_path / name).write_bytes(text.encode(encoding))
        with pytest.raises(errors.FileUnusable) as caught:
            local.register("web", tmp_path / name)
        assert "byte order mark" in (caught.value.hint or "")


def test_the_hint_of_a_mixed_folder_does_what_it_says(local: Registry, tmp_path: Path) -> None:
    """Goal: pictures beside a table are a question whose answer helps. Method: do what the hint says."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50))
    (tmp_path / "raw/labels.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(errors.FormatsMixed) as caught:
        local.register("web", tmp_path / "raw")
    hint = caught.value.hint or ""
    assert "--format jsonl takes those files only" in hint
    assert len(local.register("table", tmp_path / "raw", format="jsonl")) == 1
    assert "--format files makes a row of every file" in hint
    assert len(local.register("all", tmp_path / "raw", format="files")) == 2


def test_a_damaged_part_is_an_error_and_not_left_out(local: Registry, tmp_path: Path) -> None:
    """Goal: what is called like the data is data. Method: one of three parts is zeros, one is cut."""
    for number in range(3):
        write_rows(tmp_path / f"raw/{number}.jsonl", number, 5)
    (tmp_path / "raw/1.jsonl").write_bytes(bytes(100))
    with pytest.raises(errors.BadRow, match=r"1\.jsonl"):
        local.register("web", tmp_path / "raw")


def test_a_table_of_several_versions_is_refused(local: Registry, tmp_path: Path) -> None:
    write_rows(tmp_path / "table/_delta_log/00000000000000000000.json", 0, 1)
    write_rows(tmp_path / "table/part-0.jsonl", 0, 1)
    with pytest.raises(errors.FileUnusable, match="Delta Lake"):
        local.register("table", tmp_path / "table")


def test_empty_lines_of_a_text_are_counted(local: Registry, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n\ntwo\n")
    version = local.register("text", tmp_path / "a.txt")
    assert version.rows == 2
    assert left_out(version) == {"a.txt": "2 of its lines are empty"}
    # Known from the scan that was kept, too.
    assert left_out(local.register("again", tmp_path / "a.txt")) == left_out(version)


def test_names_that_are_no_text_are_said(local: Registry, tmp_path: Path) -> None:
    write_rows(tmp_path / "raw/a.jsonl", 0, 3)
    with open(os.fsencode(tmp_path / "raw") + b"/\xff.jsonl", "wb") as file:
        file.write(b'{"id": 9}\n')
    version = local.register("web", tmp_path / "raw")
    assert ids(version) == [0, 1, 2]
    assert list(left_out(version).values()) == ["its name is not UTF-8"]


def test_one_store_at_a_time(local: Registry, s3_bucket: str, tmp_path: Path) -> None:
    from penstock.store import open_store

    open_store(f"{s3_bucket}/both").put_if_absent("a.jsonl", json.dumps({"id": 1}).encode())
    with pytest.raises(errors.UsageError, match="different stores"):
        local.register("web", [write_rows(tmp_path / "a.jsonl", 0, 1), f"{s3_bucket}/both/a.jsonl"])


def test_pointers_of_git_lfs_are_no_rows(local: Registry, tmp_path: Path) -> None:
    """Goal: a clone without its large files is not a dataset. Method: the pointer that `git lfs` leaves, under every ending."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    for ending in ("txt", "csv", "jsonl", "parquet", "md"):
        folder = tmp_path / ending
        folder.mkdir()
        (folder / f"a.{ending}").write_text(pointer)
        with pytest.raises(errors.FileUnusable, match="pointer of Git LFS") as caught:
            local.register("web", folder)
        assert "git lfs pull" in (caught.value.hint or "")
    # One of many, too.
    for number in range(40):
        (tmp_path / f"txt/{number:02}.txt").write_text("line\n")
    with pytest.raises(errors.FileUnusable, match=r"a\.txt: it is a pointer"):
        local.register("web", tmp_path / "txt")


def test_registries_are_not_registered(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", 0, 3)
    registry = Registry(tmp_path / "registry")
    first = registry.register("web", tmp_path)
    again = registry.register("web", tmp_path)
    assert again.digest == first.digest
    assert left_out(again) == {"registry": "a registry of Penstock"}


@pytest.mark.parametrize("files", ["", [""], [], 3, b"raw", [b"raw"], [None]])
def test_what_names_no_file_is_a_usage_error(local: Registry, files: Any) -> None:
    with pytest.raises(errors.UsageError, match="files"):
        local.register("web", files)


def test_names_as_tensorflow_datasets_writes_them_are_asked_about(local: Registry, tmp_path: Path) -> None:
    for split, count in (("train", 2), ("test", 1)):
        for number in range(count):
            write_rows(tmp_path / f"raw/mnist-{split}.jsonl-{number:05}-of-{count:05}", number, 2)
    (tmp_path / "raw/features.json").write_text('{\n  "type": "FeaturesDict"\n}\n')
    (tmp_path / "raw/label.labels.txt").write_text("0\n1\n")
    with pytest.raises(errors.SplitsMixed) as caught:
        local.register("mnist", tmp_path / "raw")
    assert set(caught.value.splits) == {"train", "test"}
    version = local.register("mnist", tmp_path / "raw", policy=Policy(split="test"))
    assert (version.rows, version.manifest.format) == (2, "jsonl")


def test_names_cannot_write_on_the_terminal(local: Registry, tmp_path: Path) -> None:
    write_rows(tmp_path / "raw/a.jsonl", 0, 3)
    (tmp_path / "raw/\x1b[31m\nred.crc").touch()
    version = local.register("web", tmp_path / "raw")
    assert left_out(version) == {"\\x1b[31m\\nred.crc": "checksums"}


def test_texts_of_both_kinds_go_together_when_it_is_said_how(local: Registry, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.txt").write_text("one\ntwo\n")
    (tmp_path / "raw/b.md").write_text("# three\n")
    with pytest.raises(errors.FormatsMixed) as caught:
        local.register("text", tmp_path / "raw")
    assert "--per file" in (caught.value.hint or "")
    assert local.register("text", tmp_path / "raw", policy=Policy(per="file")).rows == 2
    assert local.register("text", tmp_path / "raw", policy=Policy(per="line")).rows == 3
