"""How a version is cut into eras: a pure function of its manifest."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import _rust
from penstock.data.eras.cut import EraIdentity, EraSizes, cut, gather
from penstock.registry.manifest import Manifest, Shard

SIZES = EraSizes(slice_bytes=100, first_bytes=200, most_bytes=1000)
VERSION = "b3:" + "5a" * 32


def manifest(shards: list[tuple[int, int]]) -> Manifest:
    """A version of shards with so many bytes and rows."""
    entries = [
        Shard(name=f"{at}.jsonl", bytes=size, digest="", rows=rows, index="")
        for at, (size, rows) in enumerate(shards)
    ]
    total_rows, total_bytes = sum(rows for _, rows in shards), sum(size for size, _ in shards)
    return Manifest(form=1, format="jsonl", rows=total_rows, bytes=total_bytes, schema=[], shards=entries)


some_shards = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 300)), max_size=12)


@given(some_shards)
def test_slices_are_the_rows_of_a_version_in_order(shards: list[tuple[int, int]]) -> None:
    """Goal: every row in one slice, no slice over two shards, none empty, none larger than asked unless it is one row."""
    slices = cut(manifest(shards), SIZES)
    ends = np.cumsum([0, *(rows for _, rows in shards)]).tolist()
    assert [piece.first for piece in slices] == [0, *(piece.stop for piece in slices[:-1])][: len(slices)]
    assert (slices[-1].stop if slices else 0) == ends[-1]
    for part in slices:
        assert part.first < part.stop
        assert not any(part.first < end < part.stop for end in ends)
        assert part.bytes <= SIZES.slice_bytes or part.stop - part.first == 1
    assert sum(piece.bytes for piece in slices) == sum(size for size, rows in shards if rows)


@given(some_shards, st.randoms(use_true_random=False))
def test_every_row_is_in_exactly_one_era(shards: list[tuple[int, int]], draws: Any) -> None:
    """Goal: eras partition the rows and have the sizes they should. Method: any manifest, slices in any order."""
    slices = cut(manifest(shards), SIZES)
    draws.shuffle(slices)
    eras = gather(slices, SIZES)
    assert [era.number for era in eras] == list(range(len(eras)))
    rows = np.concatenate([era.row_numbers() for era in eras]) if eras else np.zeros(0)
    assert sorted(rows.tolist()) == list(range(sum(rows for _, rows in shards)))
    largest = max((part.bytes for part in slices), default=0)
    for era in eras:
        assert era.rows == len(era.row_numbers()) > 0
        assert era.row_numbers().tolist() == sorted(era.row_numbers().tolist())
        wanted = SIZES.of_era(era.number)
        assert era.bytes < wanted + largest or largest == 0
        assert era.bytes >= wanted or era is eras[-1]


def test_eras_double_up_to_the_most() -> None:
    sizes = EraSizes()
    mib = [sizes.of_era(number) >> 20 for number in range(9)]
    assert mib == [16, 32, 64, 128, 256, 512, 1024, 1024, 1024]
    assert sizes.of_era(10**6) == 1 << 30
    # A terabyte of raw text: the first era does not know how much comes after it.
    terabyte = gather(cut(manifest([(1 << 30, 300_000)] * 1024), sizes), sizes)
    assert [era.bytes >> 20 for era in terabyte[:7]] == [16, 32, 64, 128, 256, 512, 1024]
    assert len(terabyte) == 1030


@settings(max_examples=20)
@given(st.integers(0, 3000))
def test_the_order_of_slices_is_a_permutation_of_the_version_alone(count: int) -> None:
    order = np.frombuffer(_rust.slice_order(VERSION, count), dtype=np.uint64)
    assert sorted(order.tolist()) == list(range(count))
    assert _rust.slice_order(VERSION, count) == order.tobytes()
    other = np.frombuffer(_rust.slice_order("b3:" + "5b" * 32, count), dtype=np.uint64)
    assert count < 20 or order.tolist() != other.tolist()


def test_golden_eras() -> None:
    """Goal: an era stays what it is for ever, since cursors and measured columns depend on it."""
    assert np.frombuffer(_rust.slice_order(VERSION, 8), dtype=np.uint64).tolist() == [3, 2, 5, 0, 6, 4, 1, 7]
    slices = cut(manifest([(350, 7), (90, 0), (1000, 3), (20, 5)]), SIZES)
    shown = [(part.first, part.stop, part.bytes) for part in slices]
    assert shown == [
        (0, 1, 87),
        (1, 3, 88),
        (3, 5, 87),
        (5, 7, 88),
        (7, 8, 333),
        (8, 9, 333),
        (9, 10, 334),
        (10, 15, 20),
    ]
    eras = gather(slices, SIZES)
    assert [era.pieces for era in eras] == [
        ((0, 1), (1, 3), (3, 5)),
        ((5, 7), (7, 8)),
        ((8, 9), (9, 10), (10, 15)),
    ]
    identity = EraIdentity(VERSION, ({"kind": "tokens", "library": "tokenizers 1"},), SIZES, shuffled=True)
    assert identity.digest[:15] == "b3:89a34e9efb76"
    assert identity.of_era(3)[:15] == "b3:76e25b8877e5"
