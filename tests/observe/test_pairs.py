"""Pairs of queries and keys in closed form are the pairs of the mask, drawn as a matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.observe.flops import BatchLayout, Mask
from penstock.observe.flops.dimension import Dimension, Shape
from penstock.observe.flops.pairs import document_pairs, rectangle_pairs
from penstock.observe.flops.site_pairs import LEAK, PairCounts, SiteGroup, count_pairs

REACH = st.one_of(st.none(), st.integers(0, 12))


def drawn(queries: int, keys: int, left: int | None, right: int | None, *, end_aligned: bool = False) -> int:
    """The mask as a matrix, counted."""
    shift = keys - queries if end_aligned else 0
    place, key = np.arange(queries)[:, None] + shift, np.arange(keys)[None, :]
    seen = np.ones((queries, keys), bool)
    if left is not None:
        seen &= key >= place - left
    if right is not None:
        seen &= key <= place + right
    return int(seen.sum())


@given(st.lists(st.integers(0, 20), max_size=12), REACH, REACH)
def test_documents_have_the_pairs_of_their_masks(
    lengths: list[int], left: int | None, right: int | None
) -> None:
    """Goal: counts are exact for packing, windows and causality. Method: draw every document's mask."""
    expected = sum(drawn(length, length, left, right) for length in lengths)

    assert document_pairs(np.array(lengths, np.int64), left=left, right=right) == expected


@given(st.integers(0, 20), st.integers(0, 20), REACH, REACH, st.booleans())
def test_a_rectangle_has_the_pairs_of_its_mask(
    queries: int, keys: int, left: int | None, right: int | None, end_aligned: bool
) -> None:
    pairs = rectangle_pairs(queries, keys, left=left, right=right, end_aligned=end_aligned)

    assert pairs == drawn(queries, keys, left, right, end_aligned=end_aligned)


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=4), REACH)
def test_a_packed_batch_has_the_pairs_of_its_block_diagonal_mask(
    rows: list[list[int]], left: int | None
) -> None:
    """Goal: padding is executed and not useful, and neither sees the other. Method: draw the mask of the whole batch."""
    length = max(sum(row) for row in rows) + 2
    documents = [part for row in rows for part in (*row, length - sum(row))]
    padding = np.array([place == len(row) for row in rows for place in range(len(row) + 1)])
    boundaries = np.concatenate([[0], np.cumsum(documents)]).astype(np.int64)
    layout = BatchLayout(
        Shape(len(rows), length),
        {"cu_seqlens": boundaries},
        {"cu_seqlens": padding},
        np.array([sum(row) for row in rows], np.int64),
    )
    tokens = Dimension(1, by_rows=True, by_length=True)
    mask = Mask(left=left, right=0, documents="cu_seqlens")
    pairs = count_pairs(SiteGroup("bfloat16", mask, (Dimension(1), tokens, tokens), 1, 1), layout)

    owner = np.repeat(np.arange(len(documents)), documents)
    place = np.arange(len(owner))
    seen = (owner[:, None] == owner[None, :]) & (place[:, None] >= place[None, :])
    if left is not None:
        seen &= place[:, None] - place[None, :] <= left
    assert isinstance(pairs, PairCounts)
    assert pairs.executed == int(seen.sum())
    assert pairs.useful == int(seen[~padding[owner]].sum())
    assert pairs.square == len(rows) * length**2


def causal_row(layout: BatchLayout) -> PairCounts | str:
    side = Dimension(1, by_length=True)
    return count_pairs(
        SiteGroup("bfloat16", Mask(right=0), (Dimension(1, by_rows=True), side, side), 1, 1), layout
    )


def test_plain_causal_attention_over_a_packed_row_is_the_row_and_says_that_documents_leak() -> None:
    boundaries = np.cumsum([0, 1000, 24, 3000, 72]).astype(np.int64)
    pairs = causal_row(BatchLayout(Shape(1, 4096), {"cu_seqlens": boundaries}))

    assert isinstance(pairs, PairCounts)
    assert pairs.executed == pairs.useful == 4096 * 4097 // 2
    assert pairs.warning == LEAK
    exact = document_pairs(np.array([1000, 24, 3000, 72], np.int64), right=0)
    assert round(pairs.useful / exact, 2) == 1.68


def test_rows_of_one_document_leak_nothing() -> None:
    pairs = causal_row(BatchLayout(Shape(2, 8), {"cu_seqlens": np.array([0, 8, 16], np.int64)}))

    assert isinstance(pairs, PairCounts)
    assert pairs.warning == ""


@pytest.mark.parametrize(
    ("boundaries", "complaint"),
    [(None, "does not have"), ([0, 10], "runs from 0 to 10"), ([2, 16], "runs from 2 to 16")],
)
def test_boundaries_that_are_not_of_this_batch_are_no_number(
    boundaries: list[int] | None, complaint: str
) -> None:
    """O3: what cannot be right is not shown."""
    fields = {} if boundaries is None else {"cu_seqlens": np.array(boundaries, np.int64)}
    tokens = Dimension(1, by_rows=True, by_length=True)
    group = SiteGroup("bfloat16", Mask(documents="cu_seqlens"), (Dimension(1), tokens, tokens), 1, 1)

    answer = count_pairs(group, BatchLayout(Shape(2, 8), fields))

    assert isinstance(answer, str)
    assert complaint in answer


def test_a_mask_that_was_seen_says_nothing_about_longer_rows() -> None:
    side = Dimension(1, by_length=True)
    mask = Mask(right=0, length_max=8)
    group = SiteGroup("bfloat16", mask, (Dimension(1, by_rows=True), side, side), 1, 1)

    assert isinstance(count_pairs(group, BatchLayout(Shape(1, 8))), PairCounts)
    assert "seen at 8 tokens" in str(count_pairs(group, BatchLayout(Shape(1, 16))))


@pytest.mark.parametrize("sides", [{"left": -1}, {"right": -2}])
def test_a_mask_of_negative_reach_is_refused(sides: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        Mask(**sides)
