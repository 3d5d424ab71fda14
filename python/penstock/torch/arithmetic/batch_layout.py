"""A batch of a loop as arithmetic sees it, read on the host: nothing here waits for a device."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from penstock.data.feed.framework_batch import FrameworkBatch
from penstock.data.feed.token_batch import TokenBatch
from penstock.errors import BatchUnreadable, ModelUntraceable
from penstock.observe.flops import BatchLayout
from penstock.observe.flops.dimension import Shape


def layout_of(batch: Any, *, real: Any = None) -> BatchLayout:
    """Rows, length, documents and padding of a batch."""
    host = batch.host if isinstance(batch, FrameworkBatch) else None
    if isinstance(host, TokenBatch):
        return _of_tokens(host)
    shape = shape_of(batch)
    boundaries = {}
    if isinstance(batch, Mapping):
        boundaries = {
            name: _on_host(name, value)
            for name, value in batch.items()
            if isinstance(value, torch.Tensor) and is_boundaries(name, value)
        }
        mask = batch.get("attention_mask")
        if real is None and isinstance(mask, torch.Tensor) and mask.dim() == 2:
            real = _on_host("attention_mask", mask).sum(axis=1)
    if real is not None:
        real = np.asarray(real, np.int64)
        if (
            real.shape != (shape.rows,)
            or shape.length is None
            or (real > shape.length).any()
            or (real < 0).any()
        ):
            raise BatchUnreadable(
                field="real",
                reason=f"expected a number of tokens for each of {shape}, got {real.tolist()[:8]}",
            )
        if int(real.min()) == shape.length:
            real = None
    return BatchLayout(shape, boundaries, real=real)


def _of_tokens(host: TokenBatch) -> BatchLayout:
    """A batch of the feed: padding is documents of their own at the ends of rows."""
    rows, length = host["tokens"].shape
    boundaries = host.cu_seqlens.astype(np.int64)
    shape = Shape(rows, length)
    if host.padding == 0:
        return BatchLayout(shape, {"cu_seqlens": boundaries})
    starts = boundaries[:-1]
    padding = host.real_tokens.reshape(-1)[starts] == 0
    real = np.full(rows, length, np.int64)
    np.subtract.at(real, starts[padding] // length, (boundaries[1:] - starts)[padding])
    return BatchLayout(shape, {"cu_seqlens": boundaries}, {"cu_seqlens": padding}, real)


def _on_host(name: str, tensor: torch.Tensor) -> npt.NDArray[np.int64]:
    if tensor.device.type != "cpu":
        raise BatchUnreadable(
            field=name,
            reason=f"it is on {tensor.device}, and reading it would wait for the device",
            hint="take a batch of penstock.torch.loader, or give flops.step the batch before it is moved",
        )
    return tensor.numpy().astype(np.int64)


def shape_of(batch: Any) -> Shape:
    """Rows and length of a batch: those of its first tensor of whole numbers in rows, else of its first tensor.

    Images and other tensors of real numbers have rows and no length.
    """
    tensors = [
        tensor for tensor in _named(batch) if tensor[1].dim() and not is_boundaries(tensor[0], tensor[1])
    ]
    for _, tensor in tensors:
        if not tensor.is_floating_point() and tensor.dim() == 2:
            return Shape(tensor.shape[0], tensor.shape[1])
    for _, tensor in tensors:
        if not tensor.is_floating_point() and tensor.dim() == 1 and tensor.shape[0] > 0 and len(tensors) == 1:
            return Shape(1, tensor.shape[0])
    for _, tensor in tensors:
        if tensor.dim() == 3:
            return Shape(tensor.shape[0], tensor.shape[1])
        return Shape(tensor.shape[0], None)
    raise ModelUntraceable(reason="the batch has no tensors", hint="give a batch as the model gets it")


def is_boundaries(name: str, tensor: torch.Tensor) -> bool:
    """Whether a field has boundaries of documents, by its name."""
    return name.startswith("cu_") and tensor.dim() == 1


def _named(batch: Any) -> Iterator[tuple[str, torch.Tensor]]:
    items = batch.items() if isinstance(batch, Mapping) else [("", batch)]
    for name, value in items:
        for leaf in torch.utils._pytree.tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                yield name, leaf
