"""A model's FLOPs as a table for people: modules that are alike are one row."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.observe.flops.dimension import Dimension
from penstock.observe.flops.layout import BatchLayout
from penstock.observe.flops.model_flops import ModelFlops
from penstock.observe.flops.product import Product, Site
from penstock.observe.flops.site_pairs import PairCounts, SiteGroup, count_pairs

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(slots=True)
class FlopsRow:
    """Modules that differ by a number in their name alone, and what they cost for the traced batch."""

    module: str
    kind: str
    dtype: str
    detail: str
    modules: set[str] = field(default_factory=set)
    forward: int = 0
    backward: int = 0
    #: What is executed without being needed: forwards that run again, scores that fused kernels compute twice.
    recompute: int = 0

    def to_json(self) -> dict[str, Any]:
        """The row as plain values."""
        return {**asdict(self), "modules": len(self.modules)}


def rows_of(model: ModelFlops) -> list[FlopsRow]:
    """One row for modules that are alike, in the order of the forward. What is unknown is not in here."""
    table: dict[tuple[str, str, str, str], FlopsRow] = {}
    layout = BatchLayout(model.first.shape)
    for entry in model.sites:
        pattern = _NUMBER.sub("*", entry.module)
        kind = "attention" if isinstance(entry, Site) else "product"
        detail = _detail(entry)
        key = (pattern, kind, entry.dtype, detail)
        row = table.setdefault(key, FlopsRow(pattern, kind, entry.dtype, detail))
        row.modules.add(entry.module)
        useful, executed = (
            (entry.flops, entry.flops) if isinstance(entry, Product) else _of_site(entry, layout)
        )
        if entry.phase == "recompute":
            row.recompute += executed
        else:
            setattr(row, entry.phase, getattr(row, entry.phase) + useful)
            row.recompute += executed - useful
    return list(table.values())


def _of_site(site: Site, layout: BatchLayout) -> tuple[int, int]:
    """Useful and executed FLOPs of a site; with boundaries those of rows that are one document each."""
    if site.mask is None:
        return 0, 0
    rows, queries, keys = site.rows, site.queries, site.keys
    mask = site.mask
    if mask.documents is not None:
        mask = replace(mask, documents=None)
        if layout.shape.length is not None and rows * queries == layout.tokens:
            rows, queries, keys = layout.shape.rows, layout.shape.length, layout.shape.length
    dims = (Dimension(rows), Dimension(queries), Dimension(keys))
    pairs = count_pairs(SiteGroup(site.dtype, mask, dims, 1, 1), layout)
    assert isinstance(pairs, PairCounts)
    return pairs.useful * site.useful_per_pair, pairs.executed * site.executed_per_pair


def _detail(entry: Product | Site) -> str:
    if isinstance(entry, Product):
        return f"{entry.experts} experts" if entry.experts else ""
    heads = f"{entry.heads}" if entry.heads == entry.kv_heads else f"{entry.heads}/{entry.kv_heads}"
    widths = f"{entry.d_qk}" if entry.d_qk == entry.d_v else f"{entry.d_qk}/{entry.d_v}"
    return f"{heads} heads of {widths}, {'unknown mask' if entry.mask is None else entry.mask}"


def notes_of(model: ModelFlops) -> Iterator[str]:
    """What to know beside the numbers."""
    quadratic = sum(
        rule is not None and sum(dimension.by_length for dimension in rule) > 1
        for entry, rule in zip(model.sites, model.rules, strict=True)
        if isinstance(entry, Product)
    )
    if quadratic:
        yield (
            f"{quadratic} products grow with the square of the length and are counted in full; where they are attention "
            "under a mask, less of it is useful (scaled_dot_product_attention would be counted exactly)"
        )
    lawless = sum(rule is None for rule in model.rules)
    if lawless:
        shapes = ", ".join(str(trace.shape) for trace in model.traces)
        yield f"{lawless} operators are not linear in tokens: only batches of {shapes} are known"
