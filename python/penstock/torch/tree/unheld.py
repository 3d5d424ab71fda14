"""What changes in training and is in no state: buffers that are not persistent, numbers, tensors and generators that are plain attributes.

PyTorch's own ``state_dict`` has none of these, so a resumed run begins with those of a fresh model. Whether that matters only the program
knows; here it is noticed and named, so that it is never silent.
"""

import random
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
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

    def changed(self) -> tuple[str, ...]:
        """What has changed since, in words."""
        return tuple(
            f"{name} changes in training and no state dict has it: {_ADVICE[kind]}"
            for (kind, name, owner, key, is_buffer), before in self._before
            if _standing(owner, key, is_buffer) != before
        )


def _looks(model: nn.Module, optimizers: Sequence[Optimizer]) -> Iterator[_Look]:
    """What is looked at: kind, name, owner, attribute, and whether that is a buffer."""
    for name, module in model.named_modules():
        path = f"model/{name}." if name else "model/"
        for key in module._non_persistent_buffers_set:
            if module._buffers.get(key) is not None:
                yield "model", path + key, module, key, True
        # Those of PyTorch keep what counts in buffers; whoever makes a state of their own says what counts.
        own_state = type(module).get_extra_state is not nn.Module.get_extra_state
        if not type(module).__module__.startswith("torch.") and not own_state:
            yield from (("model", path + key, module, key, False) for key in _attributes(module))
    for optimizer in optimizers:
        if (
            type(optimizer).__module__.startswith("torch.")
            or type(optimizer).state_dict is not Optimizer.state_dict
        ):
            continue
        for key in _attributes(optimizer):
            yield "optimizer", f"optimizer/{type(optimizer).__name__}.{key}", optimizer, key, False


def _attributes(owner: Any) -> list[str]:
    """Attributes that may be state, apart from those that every module or optimizer has."""
    return [key for key, value in vars(owner).items() if key not in _of_bases() and _may_be_state(value)]


def _may_be_state(value: Any) -> bool:
    kinds = (int, float, torch.Tensor, torch.Generator, random.Random, np.random.Generator, np.ndarray)
    if isinstance(value, list | dict | set | deque):
        members = value.values() if isinstance(value, dict) else value
        return len(value) <= _MEMBERS_MAX and all(isinstance(member, int | float) for member in members)
    return isinstance(value, kinds) and type(value) is not bool


def _standing(owner: Any, key: str, is_buffer: bool) -> Any:
    """Something that is equal as long as nothing has changed."""
    value = owner._buffers.get(key) if is_buffer else vars(owner).get(key)
    if isinstance(value, torch.Tensor):
        return id(value), 0 if value.is_inference() else value._version
    if isinstance(value, np.ndarray):
        return value.shape, zlib.crc32(np.ascontiguousarray(value).view(np.uint8).data)
    if isinstance(value, list | dict | set | deque):
        # A container that has grown beyond the limit has changed.
        return repr(value) if len(value) <= _MEMBERS_MAX else len(value)
    if isinstance(value, torch.Generator):
        return zlib.crc32(value.get_state().numpy().tobytes())
    if isinstance(value, random.Random):
        return hash(value.getstate()[1])
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    return value
