"""``penstock.jax.flops``: what a function of JAX multiplies, read from its jaxpr.

A scan counts its body as often as it runs it, which XLA's own cost analysis does not. Loops whose number of turns is decided by
values are unknown, and so are branches that cost different amounts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
from jax.extend import core

from penstock.errors import UsageError
from penstock.observe.flops import BatchLayout, ModelFlops, Product, StepFlops, Unknown
from penstock.observe.flops.dimension import Shape
from penstock.observe.flops.model_flops import ShapeTrace
from penstock.observe.flops.product import Phase

#: Primitives that multiply and have no formula here.
_PRODUCT_LIKE = frozenset(
    {
        "cholesky", "custom_call", "custom_partitioning", "eig", "eigh", "ffi_call", "fft", "geqrf", "householder_product",
        "hessenberg", "lu", "mosaic_gpu_kernel_call", "pallas_call", "qr", "schur", "svd", "triangular_solve",
        "tridiagonal_solve", "triton_kernel_call", "tpu_custom_call",
    }
)  # fmt: skip
_LOOPS = frozenset({"while"})
_REGISTERED: "dict[str, Callable[..., int] | None]" = {}


@dataclass(frozen=True)
class Flops(ModelFlops):
    """What a function of JAX costs; its shapes are fixed, so every step costs the same."""

    def step(self) -> StepFlops:
        """The FLOPs of one call."""
        return self.count(BatchLayout(self.first.shape))


class FlopCounter:
    """Counts functions of JAX; knows what primitives cost."""

    def __call__(self, function: Callable[..., Any], *args: Any) -> Flops:
        """What ``function(*args)`` multiplies, by type; arguments may be arrays or ``jax.ShapeDtypeStruct``.

        Give the whole step, gradients and all: what is counted is what is in it. Keywords are bound beforehand, with
        ``functools.partial``.
        """
        walk = _Walk([], [])
        walk.through(jax.make_jaxpr(function)(*args).jaxpr, times=1, names="")
        return Flops((ShapeTrace(Shape(1, None), tuple(walk.seen), tuple(dict.fromkeys(walk.unknown))),))

    @staticmethod
    def register(primitive: str, formula: "Callable[..., int] | None") -> None:
        """Say what a primitive costs: a function of the shapes of its inputs, or None for nothing."""
        if not primitive.isidentifier():
            raise UsageError(f"a primitive is called like pallas_call, got {primitive!r}")
        _REGISTERED[primitive] = formula


#: Count what a function costs.
flops = FlopCounter()


@dataclass(frozen=True, slots=True)
class _Walk:
    seen: list[Product]
    unknown: list[Unknown]

    def through(self, jaxpr: Any, *, times: int, names: str) -> None:
        """Everything in a jaxpr, which runs so many times."""
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            own_names = f"{names}/{equation.source_info.name_stack}".strip("/")
            if name in _REGISTERED:
                formula = _REGISTERED[name]
                if formula is not None:
                    shapes = [tuple(variable.aval.shape) for variable in equation.invars]
                    self._add(equation, own_names, 1, (times, formula(*shapes)))
            elif name in _FORMULAS:
                self._add(equation, own_names, 2, (times, *_FORMULAS[name](equation)))
            elif name in _PRODUCT_LIKE:
                self.unknown.append(Unknown(own_names, name, "no formula is known: flops.register gives it one"))
            else:
                self._inside(equation, times, own_names)

    def _inside(self, equation: Any, times: int, names: str) -> None:
        """What an equation that holds jaxprs runs."""
        name = equation.primitive.name
        if name == "cond":
            self._branches(equation, times, names)
            return
        if name == "scan":
            times *= equation.params["length"]
        elif name == "shard_map":
            # Inside, shapes are those of one shard.
            times *= equation.params["mesh"].size
        for jaxpr in _jaxprs(equation):
            inner = _Walk([], [])
            inner.through(jaxpr, times=times, names=names)
            if name in _LOOPS and inner.seen:
                self.unknown.append(Unknown(names, name, "values decide how often its products run"))
            else:
                self.seen.extend(inner.seen)
            self.unknown.extend(inner.unknown)

    def _branches(self, equation: Any, times: int, names: str) -> None:
        walks = []
        for branch in equation.params["branches"]:
            walk = _Walk([], [])
            walk.through(branch.jaxpr, times=times, names=names)
            walks.append(walk)
        costs = {tuple(sorted(_by_type(walk.seen).items())) for walk in walks}
        if len(costs) > 1:
            self.unknown.append(Unknown(names, "cond", "its branches cost different amounts"))
        else:
            self.seen.extend(walks[0].seen)
        for walk in walks:
            self.unknown.extend(walk.unknown)

    def _add(self, equation: Any, names: str, factor: int, dims: tuple[int, ...]) -> None:
        if not all(isinstance(size, int) for size in dims):
            self.unknown.append(Unknown(names, equation.primitive.name, "its shape is not known"))
            return
        dtype = equation.invars[0].aval.dtype
        if dtype.kind == "c":
            factor *= 4
        product = Product(names, equation.primitive.name, _phase(names), _type_name(dtype), factor, dims)
        self.seen.append(product)


def _by_type(seen: list[Product]) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for product in seen:
        key = (product.dtype, product.phase)
        sums[key] = sums.get(key, 0) + product.flops
    return sums


def _phase(names: str) -> Phase:
    """When it runs, by the names that JAX's transformations leave behind."""
    if "rematted_computation" in names:
        return "recompute"
    return "backward" if "transpose(" in names else "forward"


def _type_name(dtype: Any) -> str:
    name = str(dtype)
    if name.startswith("float8"):
        return "float8"
    return {"complex64": "float32", "complex128": "float64"}.get(name, name)


def _jaxprs(equation: Any) -> Iterator[Any]:
    """The jaxprs that an equation holds: calls, loops, checkpoints, functions with gradients of their own."""
    for value in equation.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item


def _dot(equation: Any) -> tuple[int, ...]:
    (left_inner, right_inner), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = (variable.aval.shape for variable in equation.invars[:2])
    free_left = prod(size for side, size in enumerate(left) if side not in {*left_inner, *left_batch})
    free_right = prod(size for side, size in enumerate(right) if side not in {*right_inner, *right_batch})
    return (
        prod(left[side] for side in left_batch),
        free_left,
        prod(left[side] for side in left_inner),
        free_right,
    )


def _ragged_dot(equation: Any) -> tuple[int, ...]:
    """Experts: every row meets one group's matrix."""
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (_, right_inner), (_, right_batch) = numbers.dot_dimension_numbers
    left, right = (variable.aval.shape for variable in equation.invars[:2])
    taken = {*right_inner, *right_batch, *numbers.rhs_group_dimensions}
    return prod(left), prod(size for side, size in enumerate(right) if side not in taken)


def _convolution(equation: Any) -> tuple[int, ...]:
    """Every output position meets the filter; where the input is spread out (gradients, transposed), every input position does."""
    left, right = (variable.aval.shape for variable in equation.invars[:2])
    numbers = equation.params["dimension_numbers"]
    if any(spread > 1 for spread in equation.params["lhs_dilation"]):
        batch, _, *places = numbers.lhs_spec
        return left[batch], prod(left[side] for side in places), prod(right)
    outputs = prod(equation.outvars[0].aval.shape)
    return outputs, prod(right) // right[numbers.rhs_spec[0]]


_FORMULAS: dict[str, Callable[[Any], tuple[int, ...]]] = {
    "dot_general": _dot,
    "ragged_dot_general": _ragged_dot,
    "conv_general_dilated": _convolution,
}
