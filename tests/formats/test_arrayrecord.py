"""ArrayRecord files, written by array_record."""

import os
import sys
import threading
from pathlib import Path

import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from penstock.errors import BadRow, CorruptShard, FileUnusable, UsageError
from penstock.formats.contract import Policy
from penstock.registry import Registry
from penstock.store import open_store
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows, flipped, same
from tests.formats.tensors import blobs, rows, written

OPTIONS = ["group_size:1", "group_size:64", "group_size:8,uncompressed", "group_size:3,brotli"]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def write(path: Path, records: list[bytes], options: str = "group_size:1") -> Path:
    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return path


def data() -> list[bytes]:
    return [row["data"] for row in blobs()]


@pytest.mark.parametrize("options", OPTIONS)
def test_records_come_back_as_bytes(tmp_path: Path, registry: Registry, options: str) -> None:
    version = registry.register("a", write(tmp_path / "a.array_record", data(), options))
    assert version.manifest.format == "arrayrecord"
    assert_rows(version, blobs())


def test_examples_come_back_as_their_features(registry: Registry) -> None:
    """One record among them is none; it is named, or left out."""
    path = written() / "examples.array_record"
    with pytest.raises(BadRow, match=r"expected a tf\.train\.Example") as caught:
        registry.register("a", path)
    assert caught.value.line == 6
    version = registry.register("a", path, policy=Policy(skip_bad=1))
    assert_rows(version, rows())
    assert [skipped.line for skipped in version.manifest.skipped] == [6]
    assert {field.name: field.kind for field in version.schema}["words"] == "list"


@pytest.mark.parametrize("options", OPTIONS[:2])
def test_flips_and_cuts_are_found(tmp_path: Path, registry: Registry, options: str) -> None:
    path = write(tmp_path / "a.array_record", data(), options)
    version = registry.register("a", path)
    assert_flips_are_found(registry, version, path, blobs(), every=2)
    assert_cuts_are_found(registry, version, path)


def test_a_bit_flipped_under_an_open_reader_is_found(tmp_path: Path, registry: Registry) -> None:
    """The whole file is looked at again when its time changes; where it does not, the library's hashes speak."""
    path = write(tmp_path / "a.array_record", data())
    version = registry.register("a", path)
    assert same(list(version), blobs())
    before = path.stat()
    for keep_time in (False, True):
        with flipped(path, 70_000):
            if keep_time:
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            with pytest.raises(CorruptShard) as caught:
                list(version)
            assert (caught.value.shard, caught.value.offset) == (str(path), 65_536)
        assert same(list(version), blobs())


def test_a_file_cut_under_an_open_reader_is_found(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a.array_record", data())
    version = registry.register("a", path)
    assert same(list(version), blobs())
    os.truncate(path, 70_000)
    with pytest.raises(CorruptShard):
        list(version)
    path.unlink()
    with pytest.raises(CorruptShard):
        list(version)


def test_threads_share_a_reader(tmp_path: Path, registry: Registry) -> None:
    version = registry.register("a", write(tmp_path / "a.array_record", data()))
    expected = blobs()
    wrong = []

    def read(first: int) -> None:
        for at in range(first, len(expected), 5):
            if not same(version.take([at, 0]), [expected[at], expected[0]]):
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_rows_over_the_limit_are_named_or_left_out(tmp_path: Path, registry: Registry) -> None:
    path = write(tmp_path / "a.array_record", [b"a", b"b" * 101, b"c"])
    with pytest.raises(BadRow, match="at most 100"):
        registry.register("a", path, policy=Policy(row_bytes_max=100))
    version = registry.register("a", path, policy=Policy(row_bytes_max=100, skip_bad=5))
    assert_rows(version, [{"data": b"a"}, {"data": b"c"}])


def test_a_file_that_breaks_its_contract_is_named(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "a.array_record"
    whole = write(path, data()).read_bytes()
    damaged = bytearray(whole)
    damaged[70_000] ^= 1
    for changed, reason in (
        (whole[:-1], "no footer"),
        (whole[: len(whole) // 2], "no footer"),
        (whole[:30], "no footer"),
        (bytes(damaged), "cannot read it"),
        (b"no such thing", "no footer"),
    ):
        path.write_bytes(changed)
        with pytest.raises(FileUnusable, match=reason) as caught:
            registry.register("a", path, format="arrayrecord")
        assert caught.value.path == str(path)
    with pytest.raises(FileUnusable, match="no records"):
        registry.register("a", write(path, []))


def test_without_the_library_the_error_says_what_to_install(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.array_record", data())
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_module", None)
    with pytest.raises(UsageError, match="array_record") as caught:
        registry.register("a", path)
    assert caught.value.hint == "pip install array_record"


def test_a_remote_file_is_read_through_a_checked_copy(tmp_path: Path, registry: Registry) -> None:
    whole = write(tmp_path / "a.array_record", data()).read_bytes()
    store = open_store("memory://test-arrayrecord/data")
    store.put_if_absent("a.array_record", whole)
    assert_rows(registry.register("a", "memory://test-arrayrecord/data/a.array_record"), blobs())
    store.delete("a.array_record")
    store.put_if_absent("a.array_record", whole[:70_000] + bytes([whole[70_000] ^ 1]) + whole[70_001:])
    with pytest.raises(CorruptShard) as caught:
        list(registry.resolve("a"))
    assert caught.value.offset == 65_536
