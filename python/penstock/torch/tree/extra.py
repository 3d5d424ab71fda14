"""What a program gives a state beside model and optimizer: objects with a state of their own, tensors, and plain values.

The program's dict is looked at anew at every save, so a value or object that was replaced in it since is the one that is saved. What is loaded goes
into the objects that the program holds: dicts and lists are filled in place, since the program may know them by another name.
"""

import random
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from penstock.errors import TreeInvalid, UsageError
from penstock.torch.tree.documents import Document, escaped, fill


class Extra:
    """The program's own dict of objects, tensors and values, as part of a state."""

    def __init__(self, extra: dict[str, Any] | None, scheduler: Any = None) -> None:
        if extra is not None and not isinstance(extra, dict):
            raise UsageError(
                f"extra must be a dict, got {type(extra).__name__}", hint='give a dict: extra={"ema": ema}'
            )
        self._extra: dict[str, Any] = {} if extra is None else extra
        self._schedulers: dict[str, Any] = {}
        if isinstance(scheduler, list | tuple):
            self._schedulers = {f"scheduler/{at}": item for at, item in enumerate(scheduler)}
        elif scheduler is not None:
            self._schedulers = {"scheduler": scheduler}
        for member in self._schedulers.values():
            if not _has_state(member):
                raise UsageError(
                    f"a scheduler must have state_dict and load_state_dict, got {type(member).__name__}"
                )

    def values(self) -> list[Any]:
        """Everything that was given."""
        return [*self._extra.values(), *self._schedulers.values()]

    def parts(self) -> Iterator[Any]:
        """Everything that was given, with what containers in it hold, and the program's dict itself."""
        waiting = [self._extra, *self.values()]
        while waiting:
            part = waiting.pop()
            yield part
            if isinstance(part, Mapping):
                waiting += part.values()
            elif isinstance(part, list | tuple | set | deque):
                waiting += part

    def modules(self) -> dict[str, nn.Module]:
        """Modules, by the beginning of the names of what is in them."""
        return {f"{_name(key)}/": value for key, value in self._extra.items() if isinstance(value, nn.Module)}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Tensors by name, filled in place."""
        return {_name(key): value for key, value in self._extra.items() if isinstance(value, torch.Tensor)}

    def documents(self) -> dict[str, Document]:
        """Everything else by name."""
        documents = {
            name: Document(scheduler.state_dict, scheduler.load_state_dict)
            for name, scheduler in self._schedulers.items()
        }
        for key, value in self._extra.items():
            if not isinstance(value, torch.Tensor):
                documents[_name(key)] = self._document(key, value)
        return documents

    def _document(self, key: str, value: Any) -> Document:
        if isinstance(value, nn.Module):
            return Document(lambda: value.state_dict(keep_vars=True), value.load_state_dict)
        if _has_state(value):
            return Document(value.state_dict, value.load_state_dict)
        if (generator := _of_generator(value)) is not None:
            return generator
        if isinstance(value, Mapping) and not isinstance(value, dict):
            hint = "give a dict, or an object with state_dict and load_state_dict"
            raise TreeInvalid(
                name=_name(key), reason=f"a {type(value).__name__} cannot be filled in place", hint=hint
            )
        extra = self._extra
        return Document(lambda: value, lambda loaded: extra.__setitem__(key, fill(value, loaded)))


def _of_generator(value: Any) -> Document | None:
    """A random generator that the program made for itself."""
    if isinstance(value, torch.Generator):
        return Document(value.get_state, value.set_state)
    if isinstance(value, random.Random):
        return Document(value.getstate, value.setstate)
    if isinstance(value, np.random.RandomState):
        return Document(lambda: value.get_state(legacy=False), value.set_state)
    if isinstance(value, np.random.Generator):
        inner = value.bit_generator
        return Document(lambda: inner.state, lambda loaded: setattr(inner, "state", loaded))
    return None


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _name(key: Any) -> str:
    if not isinstance(key, str):
        raise TreeInvalid(name="extra", reason=f"keys must be text, got {key!r}", hint=f"use {str(key)!r}")
    return f"extra/{escaped(key)}"
