"""The pairs of a flex attention's block mask: those of whole blocks, and those that its rule lets through in the others."""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from penstock.torch.arithmetic.known_values import real_tensors

#: Blocks of at least this size stand for no mask at all.
_NO_MASK_BLOCK = 1 << 30
#: Partial blocks whose rule is evaluated at once.
_BLOCKS_AT_ONCE = 256


def pairs_of(
    block_mask: tuple[Any, ...], *, rows: int, queries: int, keys: int
) -> "tuple[int, int] | tuple[()] | None":
    """Useful and executed pairs of all rows for one head; () when nothing is hidden, None when it is not known.

    ``block_mask`` is what the operator gets: lengths, blocks to look into, whole blocks, block sizes and the rule. A mask that is
    not the same for all heads is not known here.
    """
    partial, where, whole = block_mask[2:5]
    size_q, size_k, rule = block_mask[-3:]
    if size_q >= _NO_MASK_BLOCK:
        return ()
    tensors = [tensor for tensor in (partial, where, whole) if tensor is not None]
    if any(isinstance(tensor, FakeTensor) for tensor in tensors) or partial.shape[1] != 1:
        return None
    # With fewer rows than the batch, all rows have the same mask.
    repeats = rows if partial.shape[0] == 1 else 1
    with real_tensors():
        executed = useful = 0
        if whole is not None:
            executed = useful = _whole_pairs(whole, block_mask[5], (queries, keys), (size_q, size_k))
        more_useful, more_executed = _partial_pairs(partial, where, rule, (queries, keys), (size_q, size_k))
    return repeats * (useful + more_useful), repeats * (executed + more_executed)


def _blocks(counts: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Row, block of queries and block of keys of every block that is named."""
    named = torch.arange(indices.shape[-1]) < counts.cpu().unsqueeze(-1)
    row, _, block_q, at = named.nonzero(as_tuple=True)
    block_k = indices.cpu()[row, 0, block_q, at]
    return torch.stack([row, block_q, block_k.long()], dim=1)


def _whole_pairs(
    counts: torch.Tensor, indices: torch.Tensor, lengths: tuple[int, int], sizes: tuple[int, int]
) -> int:
    blocks = _blocks(counts, indices)
    high = (lengths[0] - blocks[:, 1] * sizes[0]).clamp(max=sizes[0])
    wide = (lengths[1] - blocks[:, 2] * sizes[1]).clamp(max=sizes[1])
    return int((high * wide).sum())


def _partial_pairs(
    counts: torch.Tensor, indices: torch.Tensor, rule: Any, lengths: tuple[int, int], sizes: tuple[int, int]
) -> tuple[int, int]:
    blocks = _blocks(counts, indices)
    useful = 0
    for portion in blocks.split(_BLOCKS_AT_ONCE):
        row = portion[:, 0].view(-1, 1, 1)
        query = portion[:, 1].view(-1, 1, 1) * sizes[0] + torch.arange(sizes[0]).view(1, -1, 1)
        key = portion[:, 2].view(-1, 1, 1) * sizes[1] + torch.arange(sizes[1]).view(1, 1, -1)
        inside = (query < lengths[0]) & (key < lengths[1])
        # Rules index tensors, so they see places that exist.
        seen = rule(
            row, torch.zeros_like(row), query.clamp(max=lengths[0] - 1), key.clamp(max=lengths[1] - 1)
        )
        useful += int((seen & inside).sum())
    return useful, _whole_pairs(counts, indices, lengths, sizes)
