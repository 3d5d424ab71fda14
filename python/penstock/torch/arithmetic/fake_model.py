"""A model whose parameters are fake for a while: shapes and types, no numbers; afterwards it is as before."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from penstock.errors import ModelUntraceable
from penstock.observe.flops.dimension import Shape
from penstock.torch.arithmetic.batch_layout import is_boundaries


def bare(model: torch.nn.Module) -> torch.nn.Module:
    """The model below wrappers that change nothing about what it computes."""
    while True:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            model = model.module
        elif isinstance(model, torch._dynamo.eval_frame.OptimizedModule):
            model = model._orig_mod
        else:
            return model


@contextmanager
def fake_parameters(model: torch.nn.Module, mode: FakeTensorMode, device: torch.device) -> Iterator[None]:
    """Parameters and buffers of the model are fake inside; shared ones stay shared."""
    fakes: dict[int, torch.Tensor] = {}
    tables: list[tuple[dict[str, Any], dict[str, Any]]] = []
    try:
        for module in model.modules():
            owned: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
            for table in owned:
                tables.append((table, dict(table)))
                for name, tensor in list(table.items()):
                    if tensor is not None:
                        if id(tensor) not in fakes:
                            fakes[id(tensor)] = _fake(tensor, mode, device)
                        table[name] = fakes[id(tensor)]
        yield
    finally:
        for table, before in tables:
            table.clear()
            table.update(before)


def _fake(tensor: torch.Tensor, mode: FakeTensorMode, device: torch.device) -> torch.Tensor:
    if type(tensor).__name__ == "DTensor" or hasattr(tensor, "_local_shards"):
        raise ModelUntraceable(
            reason="its parameters are sharded over processes",
            hint="count the model before it is sharded; a step of all ranks costs the same",
        )
    with mode:
        fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
        return fake


def device_of(model: torch.nn.Module) -> torch.device:
    """Where the model would run. Without a device, and for models without memory, the processor stands for it."""
    for tensor in model.parameters():
        if tensor.device.type not in ("cpu", "meta"):
            return tensor.device
    return torch.device("cpu")


def fake_batch(
    batch: Any,
    resize: Callable[[torch.Tensor, str], tuple[int, ...]],
    mode: FakeTensorMode,
    device: torch.device,
) -> Any:
    """The batch with fake tensors, each of the size that ``resize`` says; everything else stays."""

    def fake(tensor: torch.Tensor, name: str) -> torch.Tensor:
        with mode:
            return torch.empty(resize(tensor, name), dtype=tensor.dtype, device=device)

    if isinstance(batch, Mapping):
        return {
            name: tree_map_only(torch.Tensor, partial(fake, name=name), value)
            for name, value in batch.items()
        }
    return tree_map_only(torch.Tensor, lambda tensor: fake(tensor, ""), batch)


def resized(tensor: torch.Tensor, name: str, shape: Shape, to: Shape) -> tuple[int, ...]:
    """The size of a tensor of the batch at another shape: rows come first, lengths after them."""
    sizes = list(tensor.shape)
    if not sizes or is_boundaries(name, tensor):
        return tuple(sizes)
    if len(sizes) == 1 and sizes[0] == shape.length and sizes[0] != shape.rows:
        return (to.length or sizes[0],) if shape.rows == 1 and to.rows == 1 else tuple(sizes)
    if sizes[0] == shape.rows:
        sizes[0] = to.rows
    if shape.length is not None and to.length is not None and len(sizes) > 1:
        places = range(1, 2) if len(sizes) <= 3 else range(len(sizes) - 2, len(sizes))
        for place in places:
            if sizes[place] == shape.length:
                sizes[place] = to.length
    return tuple(sizes)
