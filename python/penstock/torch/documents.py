"""State that is not a tensor, as JSON: whatever ``state_dict()`` gives, with tensors taken out and named.

Numbers, texts, lists and dicts with text keys stay as they are; the rest is a dict with one key that begins with ``$`` and says
what it was. A tensor becomes ``{"$tensor": its name}`` and is stored as every other tensor is.
"""

import base64
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from penstock.errors import TreeInvalid

#: Nesting beyond this is a cycle.
DEPTH_MAX = 64
Sink = Callable[[str, torch.Tensor], None]
Fetch = Callable[[str], torch.Tensor]


def escaped(key: str) -> str:
    """A key as a part of a name."""
    return key.replace("~", "~0").replace("/", "~1")


def encode(name: str, value: Any, sink: Sink, depth: int = 0) -> Any:
    """A document of a value. Tensors inside go to ``sink`` under names below ``name``."""
    if depth > DEPTH_MAX:
        raise TreeInvalid(name=name, reason=f"it is nested deeper than {DEPTH_MAX} levels")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float | np.generic):
        return _number(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, torch.Tensor):
        sink(name, value)
        return {"$tensor": name}
    if isinstance(value, np.ndarray):
        sink(name, _shared(name, value))
        return {"$array": name}
    if isinstance(value, bytes | bytearray):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, torch.dtype | torch.device):
        return {f"${type(value).__name__}": str(value).removeprefix("torch.")}
    return _collection(name, value, sink, depth + 1)


def _collection(name: str, value: Any, sink: Sink, depth: int) -> Any:
    def inside(key: Any, item: Any) -> Any:
        return encode(f"{name}/{escaped(str(key))}", item, sink, depth)

    if isinstance(value, list):
        return [inside(at, item) for at, item in enumerate(value)]
    if type(value) in (tuple, torch.Size):
        return {"$tuple": [inside(at, item) for at, item in enumerate(value)]}
    if isinstance(value, set | frozenset):
        return {"$set": [inside(at, item) for at, item in enumerate(sorted(value))]}
    if isinstance(value, Counter):
        return {"$counter": [[inside("key", key), count] for key, count in value.items()]}
    if not isinstance(value, Mapping):
        hint = "store numbers, texts, lists, dicts and tensors; rebuild the rest from them"
        raise TreeInvalid(name=name, reason=f"{type(value).__name__} cannot be stored", hint=hint)
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: inside(key, item) for key, item in value.items()}
    return {"$dict": [[inside("key", key), inside(key, item)] for key, item in value.items()]}


def decode(document: Any, fetch: Fetch) -> Any:
    """The value of a document; ``fetch`` gives tensors by name."""
    if isinstance(document, list):
        return [decode(item, fetch) for item in document]
    if not isinstance(document, dict):
        return document
    if len(document) != 1 or not next(iter(document)).startswith("$"):
        return {key: decode(item, fetch) for key, item in document.items()}
    ((kind, inner),) = document.items()
    made: dict[str, Callable[[], Any]] = {
        "$tensor": lambda: fetch(inner),
        "$array": lambda: fetch(inner).numpy(),
        "$bytes": lambda: base64.b64decode(inner),
        "$float": lambda: float(inner),
        "$int": lambda: int(inner),
        "$dtype": lambda: getattr(torch, inner),
        "$device": lambda: torch.device(inner),
        "$tuple": lambda: tuple(decode(item, fetch) for item in inner),
        "$set": lambda: {decode(item, fetch) for item in inner},
        "$counter": lambda: Counter({decode(key, fetch): count for key, count in inner}),
        "$dict": lambda: {decode(key, fetch): decode(item, fetch) for key, item in inner},
    }
    if kind not in made:
        raise TreeInvalid(
            name=kind, reason="nothing is known of that kind", hint="read it with a newer Penstock"
        )
    return made[kind]()


def tensor_names(document: Any) -> Iterator[str]:
    """Names of the tensors in a document."""
    if isinstance(document, list):
        for item in document:
            yield from tensor_names(item)
    if isinstance(document, dict):
        for key, item in document.items():
            if key in ("$tensor", "$array") and isinstance(item, str):
                yield item
            else:
                yield from tensor_names(item)


def _number(value: Any) -> Any:
    """A number as JSON keeps it: it has no infinity, and its readers cut integers at 53 bits."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if isinstance(value, int) and abs(value) >= 1 << 53:
        return {"$int": str(value)}
    return value


def _shared(name: str, array: "np.ndarray[Any, Any]") -> torch.Tensor:
    """An array as a tensor over the same memory, or over a copy if nobody may write to it."""
    try:
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError) as reason:
        raise TreeInvalid(name=name, reason=f"an array of {array.dtype}: {reason}") from reason
