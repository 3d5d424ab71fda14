"""The pairs of attention sites in one step: useful, executed, and the full square of a row."""

from dataclasses import dataclass

import numpy as np

from penstock.observe.flops.dimension import Dimension
from penstock.observe.flops.layout import BatchLayout
from penstock.observe.flops.mask import Mask
from penstock.observe.flops.pairs import Lengths, document_pairs, rectangle_pairs

#: Said when rows of several documents meet attention that knows no boundaries.
LEAK = "attention has no boundaries of documents, so the documents of a row see each other; it is counted as it runs"


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Pairs of one step at one kind of site, for one head."""

    useful: int
    executed: int
    #: Every token of a row with every other.
    square: int
    warning: str = ""


@dataclass(frozen=True, slots=True)
class SiteGroup:
    """Sites of one type and mask, whose FLOPs per pair are added up."""

    dtype: str
    mask: Mask
    #: Rows, queries and keys.
    dims: tuple[Dimension, ...]
    useful: int
    executed: int
    #: Sites with the same number have the same pairs.
    alike: int = 0


def count_pairs(site: SiteGroup, layout: BatchLayout) -> PairCounts | str:
    """The pairs, or why they are not known."""
    rows, queries, keys = (dimension.of(layout.shape) for dimension in site.dims)
    if site.mask.length_max is not None and max(queries, keys) > site.mask.length_max:
        return f"the mask was seen at {site.mask.length_max} tokens, and rows have {max(queries, keys)} now"
    if site.mask.blocks is not None:
        useful, executed = site.mask.blocks
        return PairCounts(useful, executed, rows * queries * keys)
    if site.mask.documents is not None:
        return _of_documents(site.mask, layout, tokens=rows * queries)
    executed = rows * _of_row(site.mask, queries, keys)
    square = rows * queries * keys
    warning = ""
    if not site.mask.is_full and queries == keys and _has_several_documents(layout):
        warning = LEAK
    if layout.real is None or not site.dims[1].by_length:
        return PairCounts(executed, executed, square, warning)
    return PairCounts(_without_padding(site, layout, queries, keys), executed, square, warning)


def _of_row(mask: Mask, queries: int, keys: int) -> int:
    if queries == keys:
        return document_pairs(np.array([queries], np.int64), left=mask.left, right=mask.right)
    return rectangle_pairs(queries, keys, left=mask.left, right=mask.right, end_aligned=mask.end_aligned)


def _without_padding(site: SiteGroup, layout: BatchLayout, queries: int, keys: int) -> int:
    """Pairs of the tokens that are not padding, which is at the ends of rows."""
    real_queries = _real_side(site.dims[1], layout)
    if queries == keys:
        return document_pairs(real_queries, left=site.mask.left, right=site.mask.right)
    real_keys = _real_side(site.dims[2], layout)
    return sum(
        _of_row(site.mask, int(query), int(key)) for query, key in zip(real_queries, real_keys, strict=True)
    )


def _real_side(side: Dimension, layout: BatchLayout) -> Lengths:
    """How many of a side's tokens are not padding, by row."""
    assert layout.real is not None
    whole = side.of(layout.shape)
    if not side.by_length:
        return np.full_like(layout.real, whole)
    return np.minimum(whole, side.times * (layout.real + max(side.plus, 0)))


def _of_documents(mask: Mask, layout: BatchLayout, *, tokens: int) -> PairCounts | str:
    field = mask.documents or ""
    boundaries = layout.boundaries.get(field)
    if boundaries is None:
        return f"attention needs the boundaries {field!r}, which the batch does not have"
    if int(boundaries[0]) != 0 or int(boundaries[-1]) != tokens:
        return f"{field!r} runs from {boundaries[0]} to {boundaries[-1]}, and attention has {tokens} tokens"
    documents, padding = layout.documents(field)
    executed = documents.pairs(left=mask.left, right=mask.right)
    useful = executed if padding is None else executed - padding.pairs(left=mask.left, right=mask.right)
    length = layout.shape.length or 0
    return PairCounts(useful, executed, layout.shape.rows * length * length)


def _has_several_documents(layout: BatchLayout) -> bool:
    """Whether some row has more than one document, padding aside."""
    for field, boundaries in layout.boundaries.items():
        padding = layout.padding_documents.get(field)
        documents = len(boundaries) - 1 - (0 if padding is None else int(padding.sum()))
        if documents > layout.shape.rows:
            return True
    return False
