"""Names of a model's tensors: the path of the attribute, without what wrappers add to it.

A tensor that stands in several places (tied weights) has the name of the first; the others are remembered, so that a model
that is not tied the same way is noticed when it is loaded.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import distributed, nn
from torch.nn.parameter import is_lazy

from penstock.errors import TreeInvalid
from penstock.state.tree import checked_text
from penstock.torch.tree.buffer_sync import syncs
from penstock.torch.tree.layout import local_of

#: Wrappers of PyTorch that put the model one attribute deeper.
WRAPPERS = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
}


@dataclass
class Names:
    """What a model consists of."""

    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    #: Modules with a state of their own making (``get_extra_state``).
    extras: dict[str, nn.Module] = field(default_factory=dict)
    #: Buffers that DistributedDataParallel takes from one rank before every step, with that rank.
    sources: dict[str, int] = field(default_factory=dict)
    #: Further names of a tensor, with its first one.
    tied: dict[str, str] = field(default_factory=dict)
    #: Names by the identity of the object: that is how an optimizer knows its parameters.
    of: dict[int, str] = field(default_factory=dict)


def names_of(model: nn.Module) -> Names:
    """Every parameter, persistent buffer and extra state of a model."""
    names = Names()
    first: _Places = {}
    for name, module, source in _modules("", model, None):
        prefix = f"{name}." if name else ""
        for key, parameter in module._parameters.items():
            if parameter is not None:
                _add(names, names.parameters, first, prefix + key, parameter)
        for key, buffer in module._buffers.items():
            if buffer is not None and key not in module._non_persistent_buffers_set:
                _add(names, names.buffers, first, prefix + key, buffer)
                if source is not None:
                    names.sources[prefix + key] = source
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            names.extras[f"{prefix}_extra_state"] = module
    return names


def _modules(name: str, module: nn.Module, source: int | None) -> Iterator[tuple[str, nn.Module, int | None]]:
    """Every module with its name and, inside of a wrapper that takes buffers from one rank, that rank."""
    kinds = _ancestors(type(module))  # type: ignore[arg-type]  # mypy takes a class for its instances here
    for wrapper in kinds & WRAPPERS.keys():
        yield from _modules(name, getattr(module, WRAPPERS[wrapper]), _source_of(module, wrapper, source))
        return
    if "FullyShardedDataParallel" in kinds:
        reason = "FullyShardedDataParallel keeps flat pieces of parameters that say nothing of their places"
        hint = "shard with FSDP2: torch.distributed.fsdp.fully_shard; export what FSDP1 has with DCP and import that"
        raise TreeInvalid(name=f"model/{name}", reason=reason, hint=hint)
    if "FSDPModule" in kinds:
        # After an evaluation its parameters may still be whole; the optimizer knows the sharded ones.
        module.reshard()  # type: ignore[operator]
    yield name, module, source
    for key, child in module._modules.items():
        if child is not None:
            yield from _modules(f"{name}.{key}" if name else key, child, source)


@lru_cache(maxsize=1024)
def _ancestors(kind: type) -> frozenset[str]:
    """What PyTorch calls a class of modules and its ancestors."""
    return frozenset(
        ancestor.__name__ for ancestor in kind.__mro__ if ancestor.__module__.startswith("torch.")
    )


def _source_of(module: nn.Module, wrapper: str, source: int | None) -> int | None:
    """The rank whose buffers all ranks of a DistributedDataParallel get before their next step."""
    if wrapper != "DistributedDataParallel" or not syncs(module):
        return source
    if hasattr(module, "buffer_hook"):
        # The program says itself where buffers come from.
        return None
    return distributed.get_global_rank(module.process_group, 0)  # type: ignore[arg-type]


_PLAIN_KINDS, _STRIDED = (torch.Tensor, nn.Parameter), torch.strided
#: Names and tensors by where they begin: those that begin at one place may be one.
_Places = dict[object, list[tuple[str, torch.Tensor]]]


def _add(
    names: Names, group: dict[str, torch.Tensor], first: _Places, name: str, tensor: torch.Tensor
) -> None:
    if not name.isascii():
        checked_text(f"model/{name}", name)
    names.of.setdefault(id(tensor), name)
    beginning = _beginning(tensor)
    if (there := first.get(beginning)) is None:
        first[beginning] = [(name, tensor)]
        group[name] = tensor
        return
    known = next((other for other, at in there if _identity(at) == _identity(tensor)), None)
    if known is None:
        there.append((name, tensor))
        group[name] = tensor
    else:
        names.tied[name] = known


def _beginning(tensor: torch.Tensor) -> object:
    """Where a tensor's memory begins, which is told sooner than its whole identity; nothing is tied to most tensors."""
    if type(tensor) in _PLAIN_KINDS and tensor.layout is _STRIDED and not tensor.is_meta:
        return tensor.data_ptr() or id(tensor)
    return _identity(tensor)


def _identity(tensor: torch.Tensor) -> object:
    """Equal for tensors that are the same memory in the same form."""
    if is_lazy(tensor) or tensor.is_meta or tensor.is_nested or tensor.layout is not torch.strided:
        return id(tensor)
    local = local_of(tensor)
    if not local.numel():
        return id(tensor)
    return local.data_ptr(), local.device, local.dtype, tuple(tensor.shape), local.stride()
