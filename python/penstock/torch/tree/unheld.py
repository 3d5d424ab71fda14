"""What changes in training and is in no state: buffers that are not persistent, numbers, tensors and generators that are plain attributes.

PyTorch's own ``state_dict`` has none of these, so a resumed run begins with those of a fresh model. Whether that matters only the program
knows; here it is noticed and named, so that it is never silent. Looked at are modules, objects and modules that they hold without registering
them, attributes of parameters, optimizers, and what a communication hook of DistributedDataParallel keeps.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any
from weakref import ref

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.prune import BasePruningMethod
from torch.optim import Optimizer

from penstock.torch.tree.contents import (
    MEMBERS_MAX,
    attributes_of,
    is_plain_object,
    may_be_state,
    standing_of,
)
from penstock.torch.tree.layout import is_dtensor

_ADVICE = {
    "model": "make it a persistent buffer, or give the module get_extra_state and set_extra_state",
    "hidden": "give it to state(…, extra={…}), or register the module that has it",
    "pruned": "what is pruned next is chosen by it, so give prune importance_scores=, made from the parameter that ends with _orig",
    "optimizer": "put it into param_groups or state, or give the optimizer a state_dict of its own",
}
#: Attributes of more modules than this are not looked at: it would hold saves up.
_LOOKED_AT_MAX = 20_000
_Look = tuple[str, str, Any, str, bool]


@cache
def _of_bases() -> frozenset[str]:
    """Attributes that every module or optimizer has. Asked for late: the first optimizer that is made loads PyTorch's compiler."""
    return frozenset({*vars(nn.Module()), *vars(torch.optim.SGD([torch.zeros(1)]))})


class Unheld:
    """Looks when it is made, and again when it is asked. ``modules`` are those that the state has, by the beginning of their names."""

    def __init__(self, modules: Mapping[str, nn.Module], optimizers: Sequence[Optimizer]) -> None:
        self._before = [
            (look, _standing(*look[2:])) for look in islice(_looks(modules, optimizers), _LOOKED_AT_MAX)
        ]
        #: Owners of plain attributes, with those that they had: what an owner gets later may be state as well.
        self._owners = [
            (kind, path, owner, frozenset(attributes_of(owner)))
            for kind, path, owner in islice(_owners(modules, optimizers), _LOOKED_AT_MAX)
        ]

        #: Masks of pruned parameters: each pruning makes a new one, from the product that the last forward pass has left as an attribute.
        self._masks = [
            (name, module, key, ref(mask))
            for name, module, key in _masks(modules)
            if (mask := module._buffers[key]) is not None
        ]

    def changed(self) -> tuple[str, ...]:
        """What has changed since, in words."""
        pruned = [
            name for name, module, key, before in self._masks if module._buffers.get(key) is not before()
        ]
        names = [
            (kind, name)
            for (kind, name, owner, key, is_buffer), before in self._before
            if _standing(owner, key, is_buffer) != before
            and (before is not None or may_be_state(attributes_of(owner).get(key)))
        ]
        for kind, path, owner, known in self._owners:
            if len(attributes := attributes_of(owner)) != len(known):
                later = sorted(attributes.keys() - known)
                names += [(kind, path + key) for key in later if _is_looked_at(owner, attributes[key])]
        names += [("pruned", name) for name in pruned]
        return tuple(
            f"{name} changes in training and no state dict has it: {_ADVICE[kind]}" for kind, name in names
        )


def _looks(modules: Mapping[str, nn.Module], optimizers: Sequence[Optimizer]) -> Iterator[_Look]:
    """What is looked at: kind, name, owner, attribute, and whether that is a buffer or parameter of a module."""
    for root, model in modules.items():
        for name, module in model.named_modules():
            for key in module._non_persistent_buffers_set:
                if module._buffers.get(key) is not None:
                    yield "model", f"{root}{name}.{key}" if name else root + key, module, key, True
    for root, holder in _hidden(modules):
        for name, module in holder.named_modules():
            for key in (*module._parameters, *module._buffers):
                yield "hidden", f"{root}{name}.{key}" if name else root + key, module, key, True
    for kind, path, owner in _owners(modules, optimizers):
        for key, value in attributes_of(owner).items():
            # What is nothing yet may become state: the hidden state of a recurrent net, for example.
            if key not in _of_bases() and (value is None or _is_looked_at(owner, value)):
                yield kind, path + key, owner, key, False


def _masks(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Module, str]]:
    """Pruned parameters by name, with the module and its buffer that has the mask."""
    for root, name, module in _named(modules):
        for hook in module._forward_pre_hooks.values():
            key = f"{getattr(hook, '_tensor_name', '')}_mask"
            if isinstance(hook, BasePruningMethod) and module._buffers.get(key) is not None:
                yield f"{root}{name}.{hook._tensor_name}" if name else root + hook._tensor_name, module, key


def _owners(
    modules: Mapping[str, nn.Module], optimizers: Sequence[Optimizer]
) -> Iterator[tuple[str, str, Any]]:
    """Whatever may keep state in plain attributes: kind, beginning of its names, and the object. Objects that modules hold are among them."""
    seen: set[int] = set()
    for root, name, module in _named(modules):
        path = f"{root}{name}." if name else root
        if isinstance(module, DistributedDataParallel):
            for number, (_, state) in enumerate(getattr(module, "_comm_hooks", ())):
                if is_plain_object(state):
                    yield "hidden", f"{path}comm_hook.{number}.", state
        for key, parameter in module._parameters.items():
            # What a DTensor keeps in itself is the parameter.
            if parameter is not None and id(parameter) not in seen and not is_dtensor(parameter):
                seen.add(id(parameter))
                yield "hidden", f"{path}{key}.", parameter
        if not _says_itself(module):
            yield "model", path, module
            for key, value in vars(module).items():
                if key not in _of_bases() and is_plain_object(value) and id(value) not in seen:
                    seen.add(id(value))
                    yield "model", f"{path}{key}.", value
    for optimizer in optimizers:
        own_state = type(optimizer).state_dict is not Optimizer.state_dict
        if not type(optimizer).__module__.startswith("torch.") and not own_state:
            yield "optimizer", f"optimizer/{type(optimizer).__name__}.", optimizer


def _hidden(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """Modules that other modules hold in a list, a dict or an object, so that they are part of no state: a teacher, an average."""
    known = {id(module) for _, _, module in _named(modules)}
    for root, name, module in _named(modules):
        if _says_itself(module):
            continue
        path = f"{root}{name}." if name else root
        for key, value in vars(module).items():
            if key in _of_bases():
                continue
            inner = attributes_of(value).items() if is_plain_object(value) else ()
            for place, held in ((key, value), *((f"{key}.{below}", item) for below, item in inner)):
                for inside, member in _members(held):
                    if isinstance(member, nn.Module) and id(member) not in known:
                        known.update(id(part) for part in member.modules())
                        yield f"{path}{place}{inside}.", member


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """A value itself, or what a container has, with what its name ends with."""
    if isinstance(value, dict):
        yield from ((f".{key}", item) for key, item in islice(value.items(), MEMBERS_MAX))
    elif isinstance(value, list | tuple):
        yield from ((f".{at}", item) for at, item in enumerate(islice(value, MEMBERS_MAX)))
    else:
        yield "", value


def _named(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, str, nn.Module]]:
    for root, model in modules.items():
        for name, module in model.named_modules():
            yield root, name, module


def _says_itself(module: nn.Module) -> bool:
    """Those of PyTorch keep what counts in buffers; whoever makes a state of their own says what counts."""
    own_state = type(module).get_extra_state is not nn.Module.get_extra_state
    return type(module).__module__.startswith("torch.") or own_state


def _is_looked_at(owner: Any, value: Any) -> bool:
    """Of a parameter only tensors count (a gradient or a moment that is kept there); libraries put many marks on them."""
    return isinstance(value, torch.Tensor) if isinstance(owner, nn.Parameter) else may_be_state(value)


def _standing(owner: Any, key: str, is_registered: bool) -> Any:
    """Something that is equal as long as nothing has changed."""
    if not is_registered:
        return standing_of(attributes_of(owner).get(key))
    return standing_of(owner._buffers[key] if key in owner._buffers else owner._parameters.get(key))
