"""Rows of docs/operations.md about the cache of the host: real disks that are full, folders that vanish, bytes that rot, kills."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.operations.conftest import STEPS, Far
from tests.operations.rows import row


def _files(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def _pieces(cache: Path) -> list[Path]:
    return [path for path in (cache / "pieces").rglob("*") if path.is_file()]


@contextmanager
def _small_disk(place: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "penstock-test", place], check=True, timeout=30)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True, timeout=30)


@row("disk of the cache full")
def test_a_full_disk_is_read_past(far: Far) -> None:
    with (
        _small_disk(far.place / "disk") as disk,
        far.reading(PENSTOCK_CACHE=str(disk / "cache"), PENSTOCK_CACHE_BYTES="1G") as reader,
    ):
        assert reader.rest(STEPS) == far.digests
        counts = reader.end()
        assert counts["cache_skipped"] > 0


@row("cache directory removed")
def test_a_cache_that_vanishes_is_made_again(far: Far) -> None:
    with far.reading() as reader:
        assert reader.rest(STEPS // 4) == far.digests[: STEPS // 4]
        shutil.rmtree(far.cache)
        assert reader.rest(STEPS - STEPS // 4) == far.digests[STEPS // 4 :]
    with far.reading() as again:
        assert again.rest(STEPS) == far.digests


@row("piece in the cache damaged")
def test_rot_is_found_dropped_and_fetched_again(far: Far) -> None:
    with far.reading() as reader:
        assert reader.rest(STEPS) == far.digests
    pieces = _pieces(far.cache)
    assert pieces
    for piece in pieces:
        data = bytearray(piece.read_bytes())
        data[len(data) // 3] ^= 4
        piece.chmod(0o600)
        piece.write_bytes(data)
    with far.reading() as reader:
        assert reader.rest(STEPS) == far.digests
        assert reader.end()["cache_rotten"] == len(pieces)
    with far.reading() as reader:
        assert reader.rest(STEPS) == far.digests
        counts = reader.end()
    assert (counts["cache_rotten"], counts["bytes_read"]) == (0, 0)


@row("kill -9 of whoever fills the cache")
def test_whoever_is_killed_while_it_fills_the_cache_holds_nobody(far: Far) -> None:
    for turn in range(5):
        with far.reading() as reader:
            reader.batch()
            os.kill(reader.pid, signal.SIGKILL)
            assert reader.process.wait(30) == -signal.SIGKILL
        with far.reading() as reader:
            assert reader.batch()["digest"] == far.digests[0], turn
        for piece in _pieces(far.cache)[::2]:
            piece.unlink()
    with far.reading() as reader:
        assert reader.rest(STEPS) == far.digests
    known = {"pieces", "objects"}
    leftovers = [path for path in _files(far.cache) if path.relative_to(far.cache).parts[0] not in known]
    # Beside what is cached only the cache's own bookkeeping is there, and no file of a killed process.
    assert all(not path.name.startswith((".tmp", "tmp")) for path in leftovers), leftovers
    assert len(leftovers) <= 4, leftovers
