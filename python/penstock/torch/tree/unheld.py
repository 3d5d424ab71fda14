"""What changes in training and is in no state: buffers that are not persistent, numbers, tensors and generators that are plain attributes.

PyTorch's own ``state_dict`` has none of these, so a resumed run begins with those of a fresh model. Whether that matters only the program
knows; here it is noticed and named, so that it is never silent.
"""

import random
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

_ADVICE = {
    "model": "make it a persistent buffer, or give the module get_extra_state and set_extra_state",
    "optimizer": "put it into param_groups or state, or give the optimizer a state_dict of its own",
}
#: Attributes of more modules than this are not looked at: it would hold saves up.
_LOOKED_AT_MAX = 20_000
#: Of containers of numbers.
_MEMBERS_MAX = 1000
_Look = tuple[str, str, Any, str, bool]


@cache
def _of_bases() -> frozenset[str]:
    """Attributes that every module or optimizer has. Asked for late: the first optimizer that is made loads PyTorch's compiler."""
    return frozenset({*vars(nn.Module()), *vars(torch.optim.SGD([torch.zeros(1)]))})


class Unheld:
    """Looks when it is made, and again when it is asked."""

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self._before = [
            (look, _standing(*look[2:]))
            for look, _ in zip(_looks(model, optimizers), range(_LOOKED_AT_MAX), strict=False)
        ]
        #: Owners of plain attributes, with those that they had: what an owner gets later may be state as well.
        self._owners = [
            (kind, path, owner, frozenset(vars(owner)))
            for (kind, path, owner), _ in zip(_owners(model, optimizers), range(_LOOKED_AT_MAX), strict=False)
        ]

    def changed(self) -> tuple[str, ...]:
        """What has changed since, in words."""
        names = [
            (kind, name)
            for (kind, name, owner, key, is_buffer), before in self._before
            if _standing(owner, key, is_buffer) != before
            and (before is not None or _may_be_state(vars(owner).get(key)))
        ]
        for kind, path, owner, known in self._owners:
            later = vars(owner).keys() - known
            names += [(kind, path + key) for key in sorted(later) if _may_be_state(vars(owner)[key])]
        return tuple(
            f"{name} changes in training and no state dict has it: {_ADVICE[kind]}" for kind, name in names
        )


def _looks(model: nn.Module, optimizers: Sequence[Optimizer]) -> Iterator[_Look]:
    """What is looked at: kind, name, owner, attribute, and whether that is a buffer."""
    for name, module in model.named_modules():
        for key in module._non_persistent_buffers_set:
            if module._buffers.get(key) is not None:
                yield "model", f"model/{name}.{key}" if name else f"model/{key}", module, key, True
    for kind, path, owner in _owners(model, optimizers):
        for key, value in vars(owner).items():
            # What is nothing yet may become state: the hidden state of a recurrent net, for example.
            if key not in _of_bases() and (value is None or _may_be_state(value)):
                yield kind, path + key, owner, key, False


def _owners(model: nn.Module, optimizers: Sequence[Optimizer]) -> Iterator[tuple[str, str, Any]]:
    """Whatever may keep state in plain attributes: kind, beginning of its names, and the object. Objects that modules hold are among them."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        # Those of PyTorch keep what counts in buffers; whoever makes a state of their own says what counts.
        own_state = type(module).get_extra_state is not nn.Module.get_extra_state
        if type(module).__module__.startswith("torch.") or own_state:
            continue
        path = f"model/{name}." if name else "model/"
        yield "model", path, module
        for key, value in vars(module).items():
            if key not in _of_bases() and _is_plain_object(value) and id(value) not in seen:
                seen.add(id(value))
                yield "model", f"{path}{key}.", value
    for optimizer in optimizers:
        own_state = type(optimizer).state_dict is not Optimizer.state_dict
        if not type(optimizer).__module__.startswith("torch.") and not own_state:
            yield "optimizer", f"optimizer/{type(optimizer).__name__}.", optimizer


def _is_plain_object(value: Any) -> bool:
    """Whether it is an object of the program's own, with attributes, and no module or tensor."""
    foreign = (nn.Module, Optimizer, torch.Tensor, type, ModuleType)
    return hasattr(value, "__dict__") and not callable(value) and not isinstance(value, foreign)


def _may_be_state(value: Any) -> bool:
    kinds = (int, float, torch.Tensor, torch.Generator, random.Random, np.random.Generator, np.ndarray)
    if isinstance(value, list | dict | set | deque):
        members = value.values() if isinstance(value, dict) else value
        return len(value) <= _MEMBERS_MAX and all(isinstance(m, int | float | torch.Tensor) for m in members)
    return isinstance(value, kinds) and type(value) is not bool


def _standing(owner: Any, key: str, is_buffer: bool) -> Any:
    """Something that is equal as long as nothing has changed."""
    return _standing_of(owner._buffers.get(key) if is_buffer else vars(owner).get(key))


def _standing_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return id(value), 0 if value.is_inference() else value._version
    if isinstance(value, np.ndarray):
        return value.shape, zlib.crc32(np.ascontiguousarray(value).view(np.uint8).data)
    if isinstance(value, list | dict | set | deque):
        # A container that has grown beyond the limit has changed.
        if len(value) > _MEMBERS_MAX:
            return len(value)
        members = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        return [_standing_of(m) if isinstance(m, torch.Tensor) else repr(m) for m in members]
    if isinstance(value, torch.Generator):
        return zlib.crc32(value.get_state().numpy().tobytes())
    if isinstance(value, random.Random):
        return hash(value.getstate()[1])
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    return value
