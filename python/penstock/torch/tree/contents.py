"""How a value stands: something that is equal as long as the value has not changed, and that keeps no memory alive.

What may be state (tensors, arrays, numbers, generators, and containers of them) is compared by its contents where that is cheap. Of the rest it is known
which object it is and, for tensors, how often it was written to.
"""

import random
import zlib
from collections import deque
from itertools import islice
from numbers import Number
from types import ModuleType
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import distributed, nn
from torch.optim import Optimizer

#: Of containers, those inside of them included.
MEMBERS_MAX = 1000
#: Of containers inside of containers.
_DEPTH_MAX = 4
#: Tensors and arrays of the host up to this size are compared by their contents: writing to ``.data`` leaves no other trace.
_CONTENTS_BYTES = 64 << 10
#: Of larger arrays so many elements at fixed places are compared.
_SAMPLED = 1024
_NUMBERS = (int, float, complex, torch.Tensor)
GENERATORS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)
CONTAINERS = (list, tuple, dict, set, deque)
#: Names that classes keep in slots, by class: the same for all their objects.
_SLOTS: dict[type, tuple[str, ...]] = {}


class _Same:
    """One object and a number that it had; equal to that object alone, for as long as it lives: an identity is given to another one afterwards."""

    __slots__ = ("_count", "_object")

    def __init__(self, value: Any, count: int = 0) -> None:
        self._object, self._count = ref(value), count

    def __eq__(self, other: object) -> bool:
        alive = self._object()
        return (
            isinstance(other, _Same)
            and alive is not None
            and alive is other._object()
            and self._count == other._count
        )

    __hash__ = None  # type: ignore[assignment]  # equal ones may die


def may_be_state(value: Any, depth: int = 0) -> bool:
    """Whether a value is something that training computes with: numbers, tensors, arrays, generators, or containers of nothing else."""
    if isinstance(value, CONTAINERS):
        members = value.values() if isinstance(value, dict) else value
        return (
            depth < _DEPTH_MAX
            and len(value) <= MEMBERS_MAX
            and all(may_be_state(member, depth + 1) for member in members)
        )
    return isinstance(value, (*_NUMBERS, *GENERATORS, np.ndarray, np.number))


def is_plain_object(value: Any) -> bool:
    """Whether it is an object with attributes, and no module or tensor."""
    foreign = (nn.Module, Optimizer, torch.Tensor, type, ModuleType, distributed.ProcessGroup)
    has_attributes = hasattr(value, "__dict__") or bool(_slots(type(value)))
    return has_attributes and not callable(value) and not isinstance(value, foreign)


def attributes_of(owner: Any) -> dict[str, Any]:
    """Of an object, in its dict or in slots."""
    attributes: dict[str, Any]
    if not (slots := _slots(type(owner))):
        attributes = vars(owner)
        return attributes
    attributes = {key: getattr(owner, key) for key in slots if hasattr(owner, key)}
    attributes.update(getattr(owner, "__dict__", {}))
    return attributes


def _slots(kind: type) -> tuple[str, ...]:
    if kind.__module__ == "builtins":
        return ()
    if kind not in _SLOTS:
        named = [vars(base).get("__slots__", ()) for base in kind.__mro__]
        keys = [key for slots in named for key in ((slots,) if isinstance(slots, str) else slots)]
        _SLOTS[kind] = tuple(key for key in keys if not key.startswith("__"))
    return _SLOTS[kind]


def standing_of(value: Any, depth: int = 0) -> Any:
    """How a value stands now."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, torch.Tensor):
        return _of_tensor(value)
    if isinstance(value, np.ndarray):
        return _of_array(value)
    if isinstance(value, CONTAINERS):
        return _of_container(value, depth)
    if isinstance(value, torch.Generator):
        return zlib.crc32(value.get_state().numpy().tobytes())
    if isinstance(value, random.Random):
        return hash(value.getstate()[1:])
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    # Texts of numbers, so that not-a-number is equal to itself.
    return repr(value) if isinstance(value, int | float | complex | np.number | Number) else id(value)


def _of_container(value: Any, depth: int) -> Any:
    if depth >= _DEPTH_MAX:
        return len(value)
    if len(value) > MEMBERS_MAX:
        # One that has grown beyond the limit has changed; a queue that is full moves at its ends.
        ends = [value[0], value[-1]] if isinstance(value, list | tuple | deque) else []
        return [len(value), *(standing_of(member, depth + 1) for member in ends)]
    members = [*map(repr, value), *value.values()] if isinstance(value, dict) else value
    return [standing_of(member, depth + 1) for member in members]


def _of_array(array: "np.ndarray[Any, Any]") -> Any:
    if array.dtype.hasobject:
        return id(array), array.shape
    if array.nbytes <= _CONTENTS_BYTES:
        return array.shape, zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data)
    if isinstance(array, np.memmap) and not array.flags.writeable:
        # A file of tokens: nothing writes to it, and reading it here would be slow.
        return id(array), array.shape
    places = [*range(_SAMPLED // 2), *range(0, array.size, max(1, array.size // (_SAMPLED // 2)))]
    sample = np.array([array.flat[place] for place in islice(places, _SAMPLED)])
    return array.shape, zlib.crc32(np.ascontiguousarray(sample).view(np.uint8).data)


def _of_tensor(tensor: torch.Tensor) -> Any:
    """The contents of a small one of the host; of others which one it is, and how often it was written to."""
    plain = type(tensor) in (torch.Tensor, nn.Parameter, nn.Buffer) and tensor.layout is torch.strided
    if plain and tensor.is_cpu and tensor.nbytes <= _CONTENTS_BYTES and not tensor.is_quantized:
        flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return tensor.dtype, tensor.shape, zlib.crc32(flat.view(torch.uint8).numpy().data)
    return _Same(tensor, 0 if tensor.is_inference() else tensor._version)
