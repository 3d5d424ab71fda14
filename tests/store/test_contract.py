"""Every store keeps the same contract: a directory, memory, and a real S3 server.

``PENSTOCK_TEST_STORES`` names further ones by URL, separated by commas: ``az://container,gs://bucket``, with the servers' own settings
in the environment.
"""

import multiprocessing
import os
import uuid
from pathlib import Path

import pytest

from penstock.errors import ObjectMissing, StoreDenied, StoreFailed, UsageError
from penstock.store import Store, open_store, to_url
from penstock.store.local import LocalStore
from penstock.store.location import common_root

FURTHER = tuple(filter(None, os.environ.get("PENSTOCK_TEST_STORES", "").split(",")))


@pytest.fixture(params=["directory", "memory", "s3", *FURTHER])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param in FURTHER:
        return open_store(f"{request.param}/{uuid.uuid4().hex}")
    if request.param == "directory":
        return open_store(tmp_path / "store")
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4().hex}/below")
    return open_store(f"{request.getfixturevalue('s3_bucket')}/{uuid.uuid4().hex}")


def test_put_if_absent_makes_once_and_never_changes(store: Store) -> None:
    assert store.put_if_absent("a/b.json", b"first") is True
    assert store.put_if_absent("a/b.json", b"second") is False
    assert store.get("a/b.json") == b"first"


def test_ranges_are_exact_or_an_error(store: Store) -> None:
    store.put_if_absent("numbers", bytes(range(100)))
    assert store.get_range("numbers", 10, 5) == bytes(range(10, 15))
    assert store.get_range("numbers", 10, 0) == b""
    with pytest.raises(StoreFailed, match="ends before byte 105"):
        store.get_range("numbers", 95, 10)


def test_what_is_missing_says_its_name(store: Store) -> None:
    for ask in (store.get, store.describe, lambda name: store.get_range(name, 0, 1)):
        with pytest.raises(ObjectMissing, match=r"nothing/here"):
            ask("nothing/here")
    store.delete("nothing/here")


def test_listing_is_sorted_and_below_its_prefix(store: Store) -> None:
    for name in ("x/2", "x/10", "x/sub/1", "xy/1", "a"):
        store.put_if_absent(name, name.encode())
    assert [entry.name for entry in store.entries("x")] == ["x/10", "x/2", "x/sub/1"]
    assert [entry.name for entry in store.entries()] == ["a", "x/10", "x/2", "x/sub/1", "xy/1"]
    assert [entry.name for entry in store.entries("none")] == []
    assert next(store.entries("x")).bytes == 4


def test_a_stamp_changes_with_its_object(store: Store) -> None:
    store.put_if_absent("a", b"one")
    before = store.describe("a").stamp
    assert store.describe("a").stamp == before
    # What a listing says is compared with what the object says later.
    assert [entry.stamp for entry in store.entries()] == [before]
    store.delete("a")
    store.put_if_absent("a", b"other")
    assert store.describe("a").stamp != before


def test_a_file_becomes_an_object(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content" * 1000)
    assert store.put_file_if_absent("objects/f", tmp_path / "file") is True
    assert store.put_file_if_absent("objects/f", tmp_path / "file") is False
    assert store.get("objects/f") == b"content" * 1000


def contend(
    url: str, name: str, barrier: "multiprocessing.synchronize.Barrier", won: "multiprocessing.Queue[int]"
) -> None:
    store = open_store(url)
    barrier.wait(60)
    for number in range(20):
        if store.put_if_absent(f"{name}/{number}", str(os.getpid()).encode()):
            won.put(number)


def test_of_many_processes_exactly_one_makes_each_object(store: Store) -> None:
    """Goal: put-if-absent holds between processes. Method: four real processes race for the same twenty names."""
    contenders = 1 if store.url.startswith("memory") else 4
    context = multiprocessing.get_context("spawn")
    barrier, won = context.Barrier(contenders), context.Queue()
    processes = [
        context.Process(target=contend, args=(store.url, "race", barrier, won)) for _ in range(contenders)
    ]
    for process in processes:
        process.start()
    winners = sorted(won.get(timeout=120) for _ in range(20))
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert winners == list(range(20))
    assert won.empty()


def test_what_a_killed_writer_leaves_is_invisible_and_swept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put_if_absent("a/b", b"x")
    left = tmp_path / "a" / ".tmp-abc"
    left.write_bytes(b"half")
    assert [entry.name for entry in store.entries()] == ["a/b"]
    assert store.sweep("a") == 0
    os.utime(left, (0, 0))
    assert store.sweep("a") == 1
    assert not left.exists()


def test_a_directory_that_may_not_be_written_is_denied(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        # Root passes every permission; a file in the way is refused to root too.
        (tmp_path / "wall").write_text("")
        with pytest.raises((StoreFailed, ObjectMissing), match="wall"):
            LocalStore(tmp_path / "wall").put_if_absent("a", b"x")
        return
    (tmp_path / "wall").mkdir(mode=0o500)
    with pytest.raises(StoreDenied, match="wall"):
        LocalStore(tmp_path / "wall").put_if_absent("a", b"x")


def test_places_become_urls(tmp_path: Path) -> None:
    assert to_url(tmp_path) == f"file://{tmp_path}"
    assert to_url("s3://bucket/a/") == "s3://bucket/a"
    with pytest.raises(UsageError, match="got 'ftp://x'"):
        to_url("ftp://x")
    assert common_root(["file:///a/b1/x", "file:///a/b2/y"]) == "file:///a"
    assert common_root(["file:///a/b/x"]) == "file:///a/b"
