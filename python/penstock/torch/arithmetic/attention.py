"""Attention operators: where each keeps queries, keys, values, boundaries and masks.

All of them are read by the names of their arguments, so one reader serves torch's own backends, ``varlen_attn`` and the
operators of flash-attn, forward and backward.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from penstock.observe.flops import Mask

#: Rows, heads, tokens, width; rows, tokens, heads, width; tokens of all rows, heads, width.
Layout = Literal["bhld", "blhd"]

_SDPA = "aten::_scaled_dot_product_"
#: Operators and how their tensors lie. Those that take boundaries have all tokens in one row then.
ATTENTION: dict[str, Layout] = {
    **{
        f"{_SDPA}{name}{end}": "bhld"
        for name in (
            "flash_attention",
            "flash_attention_for_cpu",
            "efficient_attention",
            "cudnn_attention",
            "fused_attention_overrideable",
        )
        for end in ("", "_backward")
    },
    **{
        f"aten::_{name}_attention_{end}": "blhd"
        for name in ("flash", "efficient", "cudnn")
        for end in ("forward", "backward")
    },
    "aten::_flash_attention_forward_no_dropout_inplace": "blhd",
    "aten::_cudnn_attention_forward_no_dropout_inplace": "blhd",
    "torch_attn::_varlen_attn": "blhd",
    "torch_attn::_varlen_attn_out": "blhd",
    "torch_attn::_varlen_attn_backward": "blhd",
    **{
        f"{namespace}::{name}": "blhd"
        for namespace in ("flash_attn", "flash_attn_2", "flash_attn_3", "vllm_flash_attn")
        for name in (
            "_flash_attn_forward",
            "_flash_attn_backward",
            "_flash_attn_varlen_forward",
            "_flash_attn_varlen_backward",
            "fwd",
            "bwd",
            "varlen_fwd",
            "varlen_bwd",
        )
    },
}
#: Arguments under which operators take what changes the pairs in ways that nobody here follows.
_INSCRUTABLE = (
    "seqused_k",
    "seqused_q",
    "block_table",
    "page_table",
    "leftpad_k",
    "attention_chunk",
    "seqlen_k",
)


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What one call computes, before its mask is settled."""

    is_backward: bool
    dtype: torch.dtype
    heads: int
    kv_heads: int
    d_qk: int
    d_v: int
    rows: int
    queries: int
    keys: int
    left: int | None
    right: int | None
    end_aligned: bool
    #: Boundaries of documents, and a mask or bias.
    boundaries: torch.Tensor | None
    key_boundaries: torch.Tensor | None
    bias: torch.Tensor | None
    #: An argument that nobody here follows; empty when there is none.
    inscrutable: str = ""

    def mask(self, documents: str | None) -> Mask:
        """What it hides, with boundaries of a field."""
        return Mask(left=self.left, right=self.right, documents=documents, end_aligned=self.end_aligned)


def read_call(operator: str, call: Mapping[str, Any]) -> AttentionCall:
    """What an attention operator was asked for."""
    query, key, value = (_first(call, *names) for names in (("query", "q"), ("key", "k"), ("value", "v")))
    sdpa = operator.startswith(_SDPA)
    boundaries = None if sdpa else _first(call, "cum_seq_q", "cu_seq_q", "cu_seqlens_q")
    key_boundaries = None if sdpa else _first(call, "cum_seq_k", "cu_seq_k", "cu_seqlens_k")
    if query.dim() == 3:
        query, key, value = (tensor.unsqueeze(0) for tensor in (query, key, value))
    if ATTENTION[operator] == "blhd":
        query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    left, right, end_aligned = _reach(operator, call)
    return AttentionCall(
        is_backward=operator.endswith(("backward", "bwd")),
        dtype=query.dtype,
        heads=query.shape[1],
        kv_heads=key.shape[1],
        d_qk=query.shape[3],
        d_v=value.shape[3],
        rows=query.shape[0],
        queries=query.shape[2],
        keys=key.shape[2],
        left=left,
        right=right,
        end_aligned=end_aligned,
        boundaries=boundaries,
        key_boundaries=key_boundaries,
        bias=_first(call, "attn_bias", "attn_mask", "bias"),
        inscrutable=next((name for name in _INSCRUTABLE if _is_given(call.get(name))), ""),
    )


def _first(call: Mapping[str, Any], *names: str) -> Any:
    return next((call[name] for name in names if call.get(name) is not None), None)


def _is_given(value: Any) -> bool:
    return value is not None and not (isinstance(value, int) and value == 0)


def _reach(operator: str, call: Mapping[str, Any]) -> tuple[int | None, int | None, bool]:
    """Keys to the left and to the right that a query sees, and whether sides are aligned at their ends."""
    if operator.startswith("aten::_efficient_attention"):
        kind = call.get("custom_mask_type") or 0
        window = call.get("window_size")
        # Windows of this kernel count the query itself.
        return (window - 1 if window else None), (0 if kind else None), kind == 2
    causal = bool(_first(call, "is_causal", "causal"))
    window = call.get("window_size")
    left, right = window if isinstance(window, list | tuple) else (-1, -1)
    left = _first(call, "window_size_left") if _first(call, "window_size_left") is not None else left
    right = _first(call, "window_size_right") if _first(call, "window_size_right") is not None else right
    left = None if left is None or left < 0 else int(left)
    right = 0 if causal else (None if right is None or right < 0 else int(right))
    return left, right, not operator.startswith(_SDPA)
