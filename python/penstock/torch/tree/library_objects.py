"""Objects of libraries in which programs keep things of their own: a loader that shuffles, a queue, a local of a thread, a cache, bytes.

A library's own variables are its own affair; what a program has put into such an object is the program's. Here each of these kinds says what it holds, as
plain values that ``variables`` looks at.
"""

import array
import ctypes
import queue
import threading
import weakref
import zlib
from collections import ChainMap, UserDict, UserList
from collections.abc import Callable
from contextvars import ContextVar
from functools import _lru_cache_wrapper
from types import MappingProxyType
from typing import Any

from torch import nn
from torch.utils.data import DataLoader

from penstock.torch.tree.contents import GENERATORS, may_be_state

#: What is a stretch of bytes that a program may write to.
_BYTES = (bytearray, array.array, ctypes._SimpleCData, ctypes.Array, ctypes.Structure)
#: Longer ones are not looked at: it would hold saves up.
_BYTES_MAX = 16 << 20
#: Of objects inside of a loader.
_DEPTH_MAX = 3


def _of_bytes(value: Any) -> dict[str, Any]:
    whole = memoryview(value)
    return {"bytes": zlib.crc32(whole) if whole.nbytes <= _BYTES_MAX else whole.nbytes}


def _of_cache(value: Any) -> dict[str, Any]:
    """Values that were drawn when they were first asked for are drawn anew in another process."""
    return {"cache_info().currsize": value.cache_info().currsize}


def _of_variable(value: "ContextVar[Any]") -> dict[str, Any]:
    return {"get()": value.get(None)}


def _of_loader(value: Any, depth: int = 0) -> dict[str, Any]:
    """Generators of a loader and of its samplers: one that shuffles draws from them for every epoch."""
    generators: dict[str, Any] = {}
    for key, member in vars(value).items():
        if isinstance(member, GENERATORS):
            generators[key] = member
        elif (
            depth < _DEPTH_MAX
            and key in ("sampler", "batch_sampler", "dataset")
            and hasattr(member, "__dict__")
        ):
            generators |= {f"{key}.{name}": inner for name, inner in _of_loader(member, depth + 1).items()}
    return generators


def _is_averager(kind: type) -> bool:
    """Whether it counts the steps between averages of a model over ranks; PyTorch has these where nobody imports them by the way."""
    return "ModelAverager" in (ancestor.__name__ for ancestor in kind.__mro__)


def of_module(module: nn.Module) -> dict[str, Any]:
    """Tensors and numbers that a module keeps as plain attributes: a metric's sums."""
    base = vars(nn.Module())
    return {
        f"{name}.{key}" if name else key: value
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if key not in base and may_be_state(value)
    }


_INSIDE: tuple[tuple[type | tuple[type, ...], Callable[[Any], dict[str, Any]]], ...] = (
    (_BYTES, _of_bytes),
    (_lru_cache_wrapper, _of_cache),
    (ContextVar, _of_variable),
    (DataLoader, _of_loader),
    (threading.local, lambda value: dict(vars(value))),
    ((UserDict, UserList), lambda value: {"data": value.data}),
    (ChainMap, lambda value: {"maps": value.maps}),
    (MappingProxyType, lambda value: {"dict()": dict(value)}),
    (
        (weakref.WeakKeyDictionary, weakref.WeakValueDictionary),
        lambda value: {"values()": list(value.values())},
    ),
    (queue.Queue, lambda value: {"queue": value.queue}),
)


def inside_of(value: Any) -> dict[str, Any] | None:
    """What an object of a library holds for the program, by name; None where it is none of those."""
    if _is_averager(type(value)):
        return {"step": value.step}
    return next((inside(value) for kinds, inside in _INSIDE if isinstance(value, kinds)), None)
