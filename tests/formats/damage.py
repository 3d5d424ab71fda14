"""Flipped bits and cut files, tried one at a time against a registered version."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import CorruptShard
from penstock.registry import Registry, Version

BLOCK_BYTES = 64 << 10


def same(one: Any, other: Any) -> bool:
    """Exact equality, also of kinds; arrays by value, and a NaN is itself."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        if type(one) is not type(other) or one.dtype != other.dtype:
            return False
        return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def assert_rows(version: Version, expected: list[dict[str, Any]]) -> None:
    """All rows, in order, backwards, and alone."""
    assert version.rows == len(expected)
    assert same(list(version), expected)
    backwards = list(range(version.rows))[::-1]
    assert same(version.take(backwards), expected[::-1])
    assert same(version[version.rows // 2], expected[version.rows // 2])


def places(size: int) -> list[int]:
    """Bytes worth flipping: both ends, both sides of blocks, and a spread between."""
    ends = [
        0,
        1,
        4,
        7,
        8,
        100,
        300,
        511,
        size - 1,
        size - 2,
        size - 4,
        size - 5,
        size - 9,
        size - 40,
        size - 300,
    ]
    blocks = [edge + side for edge in range(BLOCK_BYTES, size, BLOCK_BYTES) for side in (-1, 0)]
    spread = [size * part // 17 for part in range(1, 17)]
    return sorted({place for place in ends + blocks[:8] + spread if 0 <= place < size})


@contextmanager
def flipped(path: Path, place: int) -> Iterator[None]:
    """One bit of a file is another while this lasts."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ (1 << place % 8)]))
    try:
        yield
    finally:
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([byte]))


def assert_flips_are_found(
    registry: Registry,
    version: Version,
    path: Path,
    expected: list[dict[str, Any]],
    *,
    read: bool = True,
    every: int = 1,
) -> None:
    """
    Goal: D4, no delivered byte is unchecked. Method: flip one bit at many places; `verify` names file and block each
    time, and reading everything raises the same or returns the true rows (where that place is not read).

    ``read=False``: the file is not read at all, because its copy is. ``every``: how many places to pass over.
    """
    raised = 0
    for place in places(path.stat().st_size)[::every]:
        block = place // BLOCK_BYTES * BLOCK_BYTES
        with flipped(path, place):
            (damage,) = registry.resolve(version.address).verify().damages
            assert (damage.file, damage.offset) == (str(path), block), f"flipped byte {place}"
            outcome = _read_all(registry.resolve(version.address))
            if isinstance(outcome, CorruptShard):
                assert (outcome.shard, outcome.offset) == (str(path), block), f"flipped byte {place}"
                raised += 1
            else:
                assert same(outcome, expected), f"flipped byte {place} was read"
    assert bool(raised) is read
    assert registry.resolve(version.address).verify().ok


def _read_all(version: Version) -> list[dict[str, Any]] | CorruptShard:
    try:
        return list(version)
    except CorruptShard as problem:
        return problem


def assert_cuts_are_found(registry: Registry, version: Version, path: Path) -> None:
    """A file that is cut, longer or gone after registration is an error that names it."""
    whole = path.read_bytes()
    for changed in (whole[:-1], whole[: len(whole) // 2], b"", whole + b"x"):
        path.write_bytes(changed)
        assert {damage.file for damage in registry.resolve(version.address).verify().damages} == {str(path)}
        with pytest.raises(CorruptShard) as caught:
            list(registry.resolve(version.address))
        assert caught.value.shard == str(path)
    path.unlink()
    with pytest.raises(CorruptShard, match="gone"):
        list(registry.resolve(version.address))
    assert [damage.reason for damage in registry.resolve(version.address).verify().damages] == [
        "the file is gone"
    ]
    path.write_bytes(whole)


def copy_path(registry: Registry, version: Version) -> Path:
    """The derived copy of a version with one shard."""
    (shard,) = version.manifest.shards
    assert shard.derived, "it was expected to need a copy"
    path = registry.store.local_path(f"derived/{shard.derived.removeprefix('b3:')}")
    assert path is not None
    return path
