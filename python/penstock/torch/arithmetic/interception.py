"""Calls of attention that would fall apart into products on fake tensors, taken as what they are on a device.

``scaled_dot_product_attention`` chooses its backend by looking at the device, which is not there. Here it becomes the operator
that a GPU would run: flash attention where that can be, else the memory-efficient one. ``flex_attention`` becomes an autograd
function that computes nothing and writes down its block mask.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from penstock.observe.flops import Mask
from penstock.torch.arithmetic.attention import AttentionCall
from penstock.torch.arithmetic.block_mask import pairs_of
from penstock.torch.arithmetic.trace import Trace

_HALVES = (torch.bfloat16, torch.float16)


class Interception(TorchFunctionMode):
    """Sends attention where a device would send it."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """One call of a function of torch."""
        keywords = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _attend(self._trace, _Sdpa(*args, **keywords))
        if func is torch.ops.higher_order.flex_attention:
            query, key, value, _, block_mask = args[:5]
            return _flex(self._trace, query, key, value, block_mask)
        return func(*args, **keywords)


@dataclass(frozen=True, slots=True)
class _Sdpa:
    """The arguments of ``scaled_dot_product_attention``, under its own names."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def _attend(trace: Trace, call: _Sdpa) -> torch.Tensor:
    query, key, value, attn_mask = call.query, call.key, call.value, call.attn_mask
    shape = (*query.shape[:-1], value.shape[-1])
    leading = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    query, key, value = (_four_dimensions(_cast(tensor), leading) for tensor in (query, key, value))
    if attn_mask is None and query.dtype in _HALVES and query.shape[-1] == value.shape[-1]:
        result = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, call.dropout_p, call.is_causal, scale=call.scale
        )
    else:
        bias = None
        if attn_mask is not None:
            bias = _bias(attn_mask, query, key)
            trace.know_bias(bias, attn_mask)
        result = torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, torch.is_grad_enabled(), call.dropout_p, call.is_causal, scale=call.scale
        )
    mixed: torch.Tensor = result[0]
    return mixed.reshape(*leading, *shape[-3:]) if len(shape) > 2 else mixed.reshape(shape)


def _cast(tensor: torch.Tensor) -> torch.Tensor:
    """As autocast would."""
    kind = tensor.device.type
    if tensor.dtype == torch.float32 and torch.is_autocast_enabled(kind):
        return tensor.to(torch.get_autocast_dtype(kind))
    return tensor


def _four_dimensions(tensor: torch.Tensor, leading: tuple[int, ...]) -> torch.Tensor:
    """Rows, heads, tokens, width."""
    if tensor.dim() < 3:
        return tensor.reshape(1, 1, *tensor.shape)
    expanded = tensor.expand(*leading, *tensor.shape[-3:])
    return expanded.reshape(-1, *tensor.shape[-3:])


def _bias(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """A mask as the bias that the operator takes."""
    added = torch.zeros_like(mask, dtype=query.dtype) if mask.dtype == torch.bool else mask.to(query.dtype)
    while added.dim() > 4:
        added = added.flatten(0, 1)
    return added.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _flex(
    trace: Trace, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, block_mask: tuple[Any, ...]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    pairs = pairs_of(block_mask, rows=query.shape[0], queries=query.shape[2], keys=key.shape[2])
    attention = AttentionCall(
        is_backward=False,
        dtype=query.dtype,
        heads=query.shape[1],
        kv_heads=key.shape[1],
        d_qk=query.shape[3],
        d_v=value.shape[3],
        rows=query.shape[0],
        queries=query.shape[2],
        keys=key.shape[2],
        left=None,
        right=None,
        end_aligned=False,
        boundaries=None,
        key_boundaries=None,
        bias=None,
        inscrutable="" if pairs is not None else "block_mask",
    )
    mask = None if pairs is None else Mask(blocks=pairs or None)
    result, logsumexp = _FlexAttention.apply(trace, attention, mask, query, key, value)
    return result, logsumexp, logsumexp


class _FlexAttention(torch.autograd.Function):
    """Shapes and a note; no numbers."""

    @staticmethod
    def forward(
        ctx: Any,
        trace: Trace,
        attention: AttentionCall,
        mask: Mask | None,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Note the call."""
        trace.add_attention("higher_order::flex_attention", attention, (True, True, True), mask=mask)
        result = query.new_empty(*query.shape[:-1], value.shape[-1])
        logsumexp = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.trace, ctx.attention, ctx.mask = trace, attention, mask
        ctx.save_for_backward(query, key, value, result)
        ctx.mark_non_differentiable(logsumexp)
        return result, logsumexp

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Note the call's gradients."""
        query, key, value, _ = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:6]
        ctx.trace.add_attention("higher_order::flex_attention_backward", ctx.attention, wanted, mask=ctx.mask)
        tensors = zip((query, key, value), wanted, strict=True)
        return (None, None, None, *(torch.empty_like(tensor) if want else None for tensor, want in tensors))
