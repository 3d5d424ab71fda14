"""What was seen while a model was traced: products, attention sites, and operators nobody knows."""

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from penstock.observe.flops.mask import Mask

#: When an operator ran: what runs again during backward, because its results were not kept, is not useful.
Phase = Literal["forward", "backward", "recompute"]


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices or a convolution: ``factor`` times its dimensions is what it costs."""

    module: str
    operator: str
    phase: Phase
    dtype: str
    factor: int
    dims: tuple[int, ...]
    #: Experts that share its tokens; 0 where there are none.
    experts: int = 0

    @property
    def flops(self) -> int:
        """Of the traced shape."""
        return self.factor * prod(self.dims)

    def same_as(self, other: "Product | Site") -> bool:
        """Whether it is the same product of the same model at another shape."""
        return (
            isinstance(other, Product)
            and (self.module, self.operator, self.phase, self.dtype, self.factor)
            == (other.module, other.operator, other.phase, other.dtype, other.factor)
            and len(self.dims) == len(other.dims)
        )


@dataclass(frozen=True, slots=True)
class Site:
    """One call of attention. Forward has two products per pair, backward four, of which each gradient needs some."""

    module: str
    operator: str
    phase: Phase
    dtype: str
    heads: int
    kv_heads: int
    d_qk: int
    d_v: int
    #: Rows and their queries and keys; with boundaries one row, and all tokens are its queries.
    rows: int
    queries: int
    keys: int
    #: None when it is not known what is hidden.
    mask: Mask | None
    #: Backward: whether gradients of query, key and value are wanted.
    gradients: tuple[bool, bool, bool] = (True, True, True)
    #: Backward: whether the kernel computes the scores again, as fused ones do.
    fused: bool = True

    @property
    def useful_per_pair(self) -> int:
        """FLOPs for one pair and all heads that the result needs."""
        if self.phase != "backward":
            return 2 * self.heads * (self.d_qk + self.d_v)
        query, key, value = self.gradients
        # The gradient of the weights is needed by those of queries and keys.
        widths = self.d_v * (value + (query or key)) + self.d_qk * (query + key)
        return 2 * self.heads * widths

    @property
    def executed_per_pair(self) -> int:
        """FLOPs for one pair that kernels execute."""
        if self.phase != "backward":
            return self.useful_per_pair
        if not self.fused:
            return self.useful_per_pair
        return 2 * self.heads * (3 * self.d_qk + 2 * self.d_v)

    def same_as(self, other: "Product | Site") -> bool:
        """Whether it is the same site of the same model at another shape."""
        return isinstance(other, Site) and _site_identity(self) == _site_identity(other)


def _site_identity(site: Site) -> tuple[Any, ...]:
    return (
        site.module,
        site.operator,
        site.phase,
        site.dtype,
        site.heads,
        site.kv_heads,
        site.d_qk,
        site.d_v,
        site.gradients,
        site.fused,
    )


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that may cost FLOPs, and nobody can say how many; no MFU is computed beside it."""

    module: str
    operator: str
    reason: str

    def __str__(self) -> str:
        place = f" in {self.module}" if self.module else ""
        return f"{self.operator}{place}: {self.reason}"
