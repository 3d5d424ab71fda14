"""What operators cost: formulas by name, names that look like products and have none, and names that cost nothing.

A formula gets the operator's arguments by name and its result, and gives factor and dimensions whose product are its FLOPs. Only
products are counted (matrix products, convolutions, attention), as everywhere in the field: what works element by element is
free. An operator of another namespace than torch's own is unknown until somebody registers a formula for it.
"""

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import torch

from penstock.errors import UsageError


class Cost(NamedTuple):
    """FLOPs as a factor and dimensions, in numbers of a type."""

    factor: int
    dims: tuple[int, ...]
    dtype: torch.dtype
    experts: int = 0


#: Arguments by name, and the result.
Formula = Callable[[Mapping[str, Any], Any], Cost | list[Cost]]
#: Names of torch's own operators that multiply, whatever they will be called next.
_PRODUCT_LIKE = re.compile(
    r"(^|_)(mm|bmm|mv|dot|vdot|addmm|addbmm|baddbmm|addmv|addr|matmul|matmuls|linear|bilinear|trilinear|einsum|tensordot|inner|kron|"
    r"conv\w*|convolution\w*|\w*attention\w*|attn|rnn\w*|lstm\w*|gru\w*|linalg|cdist|pdist|cholesky\w*|svd|qr|eig\w*|solve\w*|"
    r"lu|lstsq|inverse|pinverse|matrix|fft|stft|istft|gemm|sparse|cslt|spmm|hspmm|sspaddmm|geqrf|ormqr|orgqr|logdet|slogdet)(_|$)"
)
#: Names that look so and only move, resize or prepare.
_HARMLESS = re.compile(
    r"(upsample|prepack|pack_|to_sparse|to_dense|is_|_conj|linalg_(vector_norm|norm|cross|diagonal)|has_compatible)"
)
#: Namespaces whose operators move data, or say something about tensors.
_FREE_NAMESPACES = frozenset(
    {
        "prim",
        "prims",
        "profiler",
        "c10d",
        "_c10d_functional",
        "_c10d_functional_autograd",
        "fsdp",
        "rngprims",
        "higher_order_free",
        "debugprims",
        "inductor_free",
        "quantized_decomposed",
        "_dtensor",
        "symm_mem",
    }
)


def _size(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def product(left: torch.Tensor, right: torch.Tensor, *, batch: tuple[int, ...] = ()) -> Cost:
    """The cost of multiplying two matrices, or batches of them."""
    inner, columns = right.shape[-2], right.shape[-1]
    return Cost(2, (*batch, left.shape[-2], inner, columns), left.dtype)


def _mm(left: str, right: str) -> Formula:
    return lambda call, _: product(call[left], call[right])


def _bmm(left: str, right: str) -> Formula:
    return lambda call, _: product(call[left], call[right], batch=(call[left].shape[0],))


def _mv(call: Mapping[str, Any], _: Any) -> Cost:
    matrix = call["self"] if "mat" not in call else call["mat"]
    return Cost(2, _size(matrix), matrix.dtype)


def _dot(call: Mapping[str, Any], _: Any) -> Cost:
    return Cost(2, _size(call["self"]), call["self"].dtype)


def _linear(call: Mapping[str, Any], _: Any) -> Cost:
    weight = call["weight"]
    return Cost(2, (call["input"].numel() // weight.shape[-1], *_size(weight)), weight.dtype)


def _linear_backward(call: Mapping[str, Any], _: Any) -> list[Cost]:
    weight, grad = call["weight"], call["grad_output"]
    cost = Cost(2, (grad.numel() // weight.shape[0], *_size(weight)), weight.dtype)
    return [cost] * sum(bool(wanted) for wanted in call["output_mask"][:2])


def _grouped(call: Mapping[str, Any], _: Any) -> Cost:
    """Experts: every token meets one expert's matrix. Offsets cut the rows, the columns, or the inner dimension."""
    left, right = (call[name] for name in (("self", "mat2") if "self" in call else ("mat_a", "mat_b")))
    # Three dimensions on both sides are a batch of products; elsewhere each token is in one group.
    batch = (left.shape[0],) if left.dim() == right.dim() == 3 else ()
    offsets = call.get("offs")
    experts = max(left.shape[0] if left.dim() == 3 else 0, right.shape[0] if right.dim() == 3 else 0)
    if not experts and offsets is not None:
        experts = offsets.shape[0]
    return Cost(2, (*batch, left.shape[-2], left.shape[-1], right.shape[-1]), left.dtype, experts)


def _convolution(call: Mapping[str, Any], result: Any) -> Cost:
    """Every output position meets the whole filter; transposed, every input position does."""
    source, weight = call["input"], call["weight"]
    places = source if call.get("transposed", False) else result
    return Cost(2, (source.shape[0], *places.shape[2:], weight.numel()), weight.dtype)


def _convolution_backward(call: Mapping[str, Any], _: Any) -> list[Cost]:
    """The gradients of input and weight cost what the forward did, each."""
    source, weight = call["input"], call["weight"]
    places = source if call["transposed"] else call["grad_output"]
    cost = Cost(2, (source.shape[0], *places.shape[2:], weight.numel()), weight.dtype)
    return [cost] * sum(bool(wanted) for wanted in call["output_mask"][:2])


#: Formulas by name of the operator.
_FORMULAS: dict[str, Formula] = {
    "aten::mm": _mm("self", "mat2"),
    "aten::_int_mm": _mm("self", "mat2"),
    "aten::addmm": _mm("mat1", "mat2"),
    "aten::_addmm_activation": _mm("mat1", "mat2"),
    "aten::bmm": _bmm("self", "mat2"),
    "aten::baddbmm": _bmm("batch1", "batch2"),
    "aten::addbmm": _bmm("batch1", "batch2"),
    "aten::_scaled_mm": _mm("self", "mat2"),
    "aten::_scaled_mm_v2": _mm("self", "mat2"),
    "aten::_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm_v2": _grouped,
    "aten::mv": _mv,
    "aten::addmv": _mv,
    "aten::dot": _dot,
    "aten::vdot": _dot,
    "aten::linear": _linear,
    "aten::linear_backward": _linear_backward,
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::cudnn_convolution": _convolution,
    "aten::convolution_overrideable": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::convolution_backward_overrideable": _convolution_backward,
}
#: What users registered: name -> formula, or None for what costs nothing.
_REGISTERED: dict[str, "Callable[..., int] | None"] = {}


def register(operator: str, formula: "Callable[..., int] | None") -> None:
    """Say what an operator costs.

    ``formula`` gets the operator's arguments by name, tensors and all, and gives FLOPs; None says that it costs nothing. Backward
    operators have names of their own.
    """
    namespace, _, name = operator.partition("::")
    if not namespace or not name:
        raise UsageError(
            f"an operator is called namespace::name, got {operator!r}",
            hint="torch.ops.NAMESPACE.NAME.default._schema.name is the name",
        )
    _REGISTERED[operator] = formula


def registered(operator: str) -> "tuple[bool, Callable[..., int] | None]":
    """Whether users said what it costs, and what they said."""
    return operator in _REGISTERED, _REGISTERED.get(operator)


def formula_of(operator: str) -> Formula | None:
    """Our own formula of an operator."""
    return _FORMULAS.get(operator)


def is_free(operator: str) -> bool:
    """Whether an operator without a formula is known to multiply nothing."""
    namespace, _, name = operator.partition("::")
    if namespace == "aten":
        return _PRODUCT_LIKE.search(name) is None or _HARMLESS.search(name) is not None
    return namespace in _FREE_NAMESPACES


def number_type(dtype: torch.dtype, *, is_convolution: bool, on_gpu: bool) -> tuple[str, int]:
    """What peaks call a type, and how many real products one of its products is."""
    if dtype.is_complex:
        name = "float64" if dtype == torch.complex128 else "float32"
        return name, 4
    name = str(dtype).removeprefix("torch.")
    if name.startswith("float8"):
        return "float8", 1
    if name.startswith("float4"):
        return "float4", 1
    if dtype == torch.float32 and on_gpu:
        relaxed = (
            torch.backends.cudnn.allow_tf32
            if is_convolution
            else torch.get_float32_matmul_precision() != "highest"
        )
        return ("tf32" if relaxed else "float32"), 1
    return name, 1


def elements(shape: tuple[int, ...]) -> int:
    """How many there are."""
    return prod(shape)
