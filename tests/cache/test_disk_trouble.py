"""What a disk can do to a cache: fill up, rot, lose the directory, and be too small. Readers get the right bytes all the same."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cache.conftest import Far


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of three megabytes; nothing where we may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        yield None
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "penstock", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_on_a_full_disk_reads_go_through(far: Far, small_disk: Path | None) -> None:
    """Goal: a full disk is a matter of speed. Method: a disk of three megabytes, or a limit to the length of files."""
    how = "twice" if small_disk else "limited"
    changes = {"PENSTOCK_CACHE": str(small_disk / "cache")} if small_disk else {}
    counts = far.read(how, PENSTOCK_CACHE_BYTES="1G", **changes)
    assert counts["cache_skipped"] > 0
    assert counts["cache_written_bytes"] < 3 << 20


def test_files_that_cannot_be_written_are_done_without(far: Far) -> None:
    counts = far.read("limited")
    assert counts["cache_skipped"] > 0
    assert far.pieces() == []


def test_a_directory_that_disappears_is_made_again(far: Far) -> None:
    reader = far.start("waiting")
    assert reader.stdout is not None
    assert reader.stdin is not None
    reader.stdout.readline()
    shutil.rmtree(far.cache, ignore_errors=True)
    reader.stdin.write("go\n")
    reader.stdin.flush()
    far.answer(reader)
    shutil.rmtree(far.cache)
    far.read()
    assert far.read()["cache_misses"] == 0


def test_rotten_pieces_are_dropped_and_fetched_again(far: Far) -> None:
    far.read()
    pieces = far.pieces()
    assert len(pieces) == 5
    content = bytearray(pieces[0].read_bytes())
    content[1_000] ^= 1
    pieces[0].write_bytes(content)
    pieces[1].write_bytes(content[:1_000])
    counts = far.read()
    assert counts["cache_rotten"] == 2
    assert counts["pieces_fetched_bytes"] <= 2 << 20
    assert far.read()["cache_misses"] == 0


def test_readers_of_a_cache_that_is_too_small_get_the_right_bytes(far: Far) -> None:
    """Goal: eviction never harms a reader. Method: three processes read all, twice, through a cache of less than half of it."""
    readers = [far.start("twice", PENSTOCK_CACHE_BYTES="2M") for _ in range(3)]
    counts = [far.answer(reader) for reader in readers]
    assert sum(one["cache_evicted"] for one in counts) > 0
    assert sum(piece.stat().st_size for piece in far.pieces()) <= 2 << 20
