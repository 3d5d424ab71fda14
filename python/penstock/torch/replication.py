"""Data parallelism whose sums have the same order in every life.

DistributedDataParallel puts gradients into buckets, and after its first step into other buckets, in the order in which gradients became
ready. Where a gradient stands in a bucket decides in which order the ranks' values are added (from three ranks on), so a resumed
run, whose first step uses the first buckets again, gets other bits than one that was not interrupted. Here the change is made
before the first step: two passes over a sum of all parameters times zero, which change nothing but the buckets.
"""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class DDPKeywords(TypedDict, total=False):
    """What ``DistributedDataParallel`` takes beside the module."""

    device_ids: Sequence[int | torch.device] | None
    output_device: int | torch.device | None
    dim: int
    broadcast_buffers: bool
    init_sync: bool
    process_group: Any
    bucket_cap_mb: float | None
    find_unused_parameters: bool
    check_reduction: bool
    gradient_as_bucket_view: bool
    static_graph: bool
    device_mesh: Any


def ddp(model: nn.Module, **options: Unpack[DDPKeywords]) -> DistributedDataParallel:
    """``DistributedDataParallel(model, **options)`` with its buckets settled. Every rank calls it; a resume is bit-equal at any number of ranks."""
    wrapped = DistributedDataParallel(model, **options)
    before = [parameter.grad for parameter in model.parameters()]
    # An attribute of the object hides the method of its class, and is taken away again.
    model.forward = _nothing_of(model)
    try:
        # The first backward notes the order, the second forward makes buckets of it.
        wrapped().backward()
        wrapped().backward()
    finally:
        del model.forward
    for parameter, grad in zip(model.parameters(), before, strict=True):
        parameter.grad = grad
    return wrapped


def _nothing_of(model: nn.Module) -> Any:
    def forward() -> torch.Tensor:
        wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # One term after another, so that gradients are ready from the last to the first, as in a real backward pass.
        total = torch.zeros((), device=wanted[0].device)
        for parameter in wanted:
            total = total + parameter.reshape(-1)[:1].float().sum() * 0.0
        return total

    return forward
