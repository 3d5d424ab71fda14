"""What a model costs: everything that was traced, and from it the exact integer of any step.

Products are kept as coefficients of rows and lengths, attention as sites whose pairs are counted anew for the documents of each
step. What follows no rule is known for the traced shapes alone. Where anything is unknown there is no number.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

from penstock.observe.flops.dimension import Dimension, Shape, dimension_of
from penstock.observe.flops.layout import BatchLayout
from penstock.observe.flops.product import Product, Site, Unknown
from penstock.observe.flops.site_pairs import PairCounts, SiteGroup, count_pairs

Seen = Product | Site


@dataclass(frozen=True, slots=True)
class ShapeTrace:
    """What was seen at one shape, in order."""

    shape: Shape
    seen: tuple[Seen, ...]
    unknown: tuple[Unknown, ...] = ()


@dataclass(frozen=True, slots=True)
class StepFlops:
    """The FLOPs of one step, by type of number; None where something is unknown."""

    #: What the results need: no padding, nothing twice.
    useful: Mapping[str, int] | None
    #: What kernels execute: padding and recomputation too.
    executed: Mapping[str, int] | None
    #: By the convention of PaLM: every token counts, attention is the full square of the row, nothing twice.
    palm: Mapping[str, int] | None
    tokens: int
    real_tokens: int
    unknown: tuple[Unknown, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def useful_total(self) -> int | None:
        """Useful FLOPs of all types together."""
        return None if self.useful is None else sum(self.useful.values())

    @property
    def executed_total(self) -> int | None:
        """Executed FLOPs of all types together."""
        return None if self.executed is None else sum(self.executed.values())

    def to_json(self) -> dict[str, Any]:
        """The counts as plain values."""
        return {
            "useful": None if self.useful is None else dict(self.useful),
            "executed": None if self.executed is None else dict(self.executed),
            "palm": None if self.palm is None else dict(self.palm),
            "tokens": self.tokens,
            "real_tokens": self.real_tokens,
            "unknown": [str(unknown) for unknown in self.unknown],
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class _ProductGroup:
    """Products of one type that grow alike."""

    dtype: str
    is_recompute: bool
    dims: tuple[Dimension, ...]
    coefficient: int

    def executed(self, shape: Shape) -> int:
        return self.coefficient * prod(dimension.of(shape) for dimension in self.dims)

    def useful(self, layout: BatchLayout) -> int:
        """Without padding, where every row has its own share; products across rows have no padding to leave out."""
        rows = sum(dimension.by_rows for dimension in self.dims)
        lengths = [dimension for dimension in self.dims if dimension.by_length]
        if layout.real is None or rows != 1 or not lengths:
            return self.executed(layout.shape)
        times = self.coefficient * prod(dimension.times for dimension in self.dims)
        if len(lengths) == 1:
            return times * layout.real_within(lengths[0].plus)
        length = layout.shape.length or 0
        return times * sum(
            prod(min(real + max(side.plus, 0), length + side.plus) for side in lengths)
            for real in layout.real.tolist()
        )


@dataclass(frozen=True)
class ModelFlops:
    """What tracing found. ``step`` gives the exact integers of a batch."""

    traces: tuple[ShapeTrace, ...]
    #: Notes for people, such as products that look like attention.
    notes: tuple[str, ...] = field(default=())

    @property
    def first(self) -> ShapeTrace:
        """The trace of the batch that was given."""
        return self.traces[0]

    @cached_property
    def rules(self) -> tuple[tuple[Dimension, ...] | None, ...]:
        """For everything seen, how its dimensions follow from the shape; None where they follow no rule."""
        others = [trace for trace in self.traces[1:] if _aligned(self.first, trace)]
        if not others:
            return tuple(None for _ in self.first.seen)
        second = others[0]
        shapes = (self.first.shape, second.shape)
        return tuple(_rule(one, two, shapes) for one, two in zip(self.first.seen, second.seen, strict=True))

    @cached_property
    def sites(self) -> tuple[Seen, ...]:
        """Everything seen, with masks as all traces together show them."""
        others = [trace for trace in self.traces[1:] if _aligned(self.first, trace)]
        return tuple(
            _with_agreed_mask(entry, [trace.seen[place] for trace in others])
            for place, entry in enumerate(self.first.seen)
        )

    @cached_property
    def unknown(self) -> tuple[Unknown, ...]:
        """Everything that may cost FLOPs and has no count, each once."""
        hidden = [
            Unknown(site.module, site.operator, "it is not known what its mask hides: declare it with masks=")
            for site in self.first.seen
            if isinstance(site, Site) and site.mask is None and site.phase == "forward"
        ]
        return tuple(dict.fromkeys([*self.first.unknown, *hidden]))

    @cached_property
    def _plan(self) -> "_Plan":
        return _Plan.of(self)

    def count(self, layout: BatchLayout) -> StepFlops:
        """The FLOPs of a step whose batch is laid out like this."""
        return self._plan.count(self, layout)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What does not change from step to step, added up beforehand."""

    products: tuple[_ProductGroup, ...]
    sites: tuple[SiteGroup, ...]
    #: Whether something follows no rule, so that traced shapes alone are known.
    is_bound: bool
    traced: Mapping[Shape, "tuple[tuple[_ProductGroup, ...], tuple[SiteGroup, ...]]"]

    @classmethod
    def of(cls, model: ModelFlops) -> "_Plan":
        """Group what was seen."""
        is_bound = any(rule is None for rule in model.rules)
        products, sites = ((), ()) if is_bound else _groups(model.sites, model.rules)
        traced = {}
        if is_bound:
            for trace in model.traces:
                if not trace.unknown:
                    fixed = tuple(_fixed_rule(seen) for seen in trace.seen)
                    traced[trace.shape] = _groups(trace.seen, fixed)
        return cls(products, sites, is_bound, traced)

    def count(self, model: ModelFlops, layout: BatchLayout) -> StepFlops:
        """Add up."""
        products, sites = self.products, self.sites
        unknown = list(model.unknown)
        if self.is_bound and not unknown:
            if layout.shape not in self.traced:
                unknown.append(_unseen_shape(model, layout.shape))
            elif layout.real is not None:
                unknown.append(
                    Unknown(
                        "", "padding", "products that are not linear in tokens have an unknown share of it"
                    )
                )
            else:
                products, sites = self.traced[layout.shape]
        useful: dict[str, int] = {}
        executed: dict[str, int] = {}
        palm: dict[str, int] = {}
        warnings: list[str] = []
        if not unknown:
            for group in products:
                all_of_it = group.executed(layout.shape)
                executed[group.dtype] = executed.get(group.dtype, 0) + all_of_it
                if not group.is_recompute:
                    palm[group.dtype] = palm.get(group.dtype, 0) + all_of_it
                    useful[group.dtype] = useful.get(group.dtype, 0) + group.useful(layout)
            counted: dict[int, PairCounts | str] = {}
            for site in sites:
                pairs = counted.get(site.alike)
                if pairs is None:
                    pairs = counted[site.alike] = count_pairs(site, layout)
                if isinstance(pairs, str):
                    unknown.append(Unknown("", "attention", pairs))
                    continue
                executed[site.dtype] = executed.get(site.dtype, 0) + site.executed * pairs.executed
                useful[site.dtype] = useful.get(site.dtype, 0) + site.useful * pairs.useful
                palm[site.dtype] = palm.get(site.dtype, 0) + site.useful * pairs.square
                if pairs.warning and pairs.warning not in warnings:
                    warnings.append(pairs.warning)
        known = not unknown
        return StepFlops(
            useful=useful if known else None,
            executed=executed if known else None,
            palm=palm if known else None,
            tokens=layout.tokens,
            real_tokens=layout.real_tokens,
            unknown=tuple(dict.fromkeys(unknown)),
            warnings=tuple(warnings),
        )


def _unseen_shape(model: ModelFlops, shape: Shape) -> Unknown:
    lawless = next(seen for seen, rule in zip(model.first.seen, model.rules, strict=True) if rule is None)
    known = ", ".join(str(trace.shape) for trace in model.traces)
    return Unknown(
        lawless.module,
        lawless.operator,
        f"it is not linear in tokens, and batches of {shape} were not traced (traced: {known})",
    )


def _aligned(one: ShapeTrace, two: ShapeTrace) -> bool:
    return len(one.seen) == len(two.seen) and all(
        first.same_as(second) for first, second in zip(one.seen, two.seen, strict=True)
    )


def _rule(one: Seen, two: Seen, shapes: tuple[Shape, Shape]) -> tuple[Dimension, ...] | None:
    if isinstance(one, Site) and isinstance(two, Site):
        if one.mask is None or two.mask is None or one.mask.blocks is not None:
            return None if one.mask != two.mask or one.mask is not None else ()
        if one.mask.agree(two.mask) is None:
            return None
        sizes = zip((one.rows, one.queries, one.keys), (two.rows, two.queries, two.keys), strict=True)
    else:
        assert isinstance(one, Product)
        assert isinstance(two, Product)
        sizes = zip(one.dims, two.dims, strict=True)
    rule = [dimension_of(first, second, shapes) for first, second in sizes]
    return None if None in rule else tuple(dimension for dimension in rule if dimension is not None)


def _with_agreed_mask(entry: Seen, others: list[Seen]) -> Seen:
    if not isinstance(entry, Site) or entry.mask is None:
        return entry
    mask = entry.mask
    for other in others:
        if isinstance(other, Site) and other.mask is not None:
            mask = mask.agree(other.mask) or mask
    return replace(entry, mask=mask)


def _fixed_rule(seen: Seen) -> tuple[Dimension, ...]:
    sizes = (seen.rows, seen.queries, seen.keys) if isinstance(seen, Site) else seen.dims
    return tuple(Dimension(size) for size in sizes)


def _groups(
    seen: tuple[Seen, ...], rules: "tuple[tuple[Dimension, ...] | None, ...]"
) -> tuple[tuple[_ProductGroup, ...], tuple[SiteGroup, ...]]:
    products: dict[tuple[str, bool, tuple[Dimension, ...]], int] = {}
    sites: dict[Any, list[int]] = {}
    for entry, rule in zip(seen, rules, strict=True):
        assert rule is not None
        is_recompute = entry.phase == "recompute"
        if isinstance(entry, Product):
            moving = tuple(sorted(dimension for dimension in rule if not dimension.is_constant))
            constant = entry.factor * prod(dimension.times for dimension in rule if dimension.is_constant)
            key = (entry.dtype, is_recompute, moving)
            products[key] = products.get(key, 0) + constant
        elif entry.mask is not None:
            sums = sites.setdefault((entry.dtype, entry.mask, rule), [0, 0])
            sums[0] += 0 if is_recompute else entry.useful_per_pair
            sums[1] += entry.executed_per_pair
    alike: dict[Any, int] = {}
    for _, mask, rule in sites:
        alike.setdefault((mask, rule), len(alike))
    return (
        tuple(_ProductGroup(*key, coefficient) for key, coefficient in products.items()),
        tuple(
            SiteGroup(dtype, mask, rule, useful, executed, alike[mask, rule])
            for (dtype, mask, rule), (useful, executed) in sites.items()
        ),
    )


def by_module(model: ModelFlops) -> Iterator[tuple[Seen, "tuple[Dimension, ...] | None"]]:
    """Everything seen with its rule, for tables."""
    return zip(model.first.seen, model.rules, strict=True)
