"""State that is not a tensor, as JSON: whatever ``state_dict()`` gives, with tensors taken out and named.

Numbers, texts, lists and dicts with text keys stay as they are; the rest is a dict with one key that begins with ``$`` and says
what it was. A tensor becomes ``{"$tensor": its name}`` and is stored as every other tensor is.
"""

import base64
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from penstock.errors import TreeInvalid
from penstock.state.tree import checked_text

#: Nesting beyond this is a cycle.
DEPTH_MAX = 64
Sink = Callable[[str, torch.Tensor], None]
Fetch = Callable[[str], torch.Tensor]


#: Types of numpy that are numbers of Python as well, bit for bit.
_PLAIN_NUMBERS = ("bool", "int64", "float64")


@dataclass(frozen=True, slots=True)
class Document:
    """A part of the state that only its owner understands, and how to read and write it."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


class Tensors(dict[str, torch.Tensor]):
    """Tensors by name, each name once."""

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """A further one; a ``Sink``."""
        if name in self:
            hint = "rename a key: 1 and '1' give the same name"
            raise TreeInvalid(name=name, reason="two leaves have this name", hint=hint)
        self[name] = tensor


def escaped(key: str) -> str:
    """A key as a part of a name."""
    return key.replace("~", "~0").replace("/", "~1") if "/" in key or "~" in key else key


def encode(name: str, value: Any, sink: Sink, depth: int = 0) -> Any:
    """A document of a value. Tensors inside go to ``sink`` under names below ``name``."""
    if depth > DEPTH_MAX:
        raise TreeInvalid(name=name, reason=f"it is nested deeper than {DEPTH_MAX} levels")
    if value is None or isinstance(value, bool | str):
        return checked_text(name, value) if isinstance(value, str) else value
    if isinstance(value, np.generic):
        return _scalar(name, value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, complex):
        return {"$complex": [_number(value.real), _number(value.imag)]}
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
    if isinstance(value, deque):
        return {"$deque": [value.maxlen, [inside(at, item) for at, item in enumerate(value)]]}
    if isinstance(value, set | frozenset):
        return {"$set": [_key(name, item) for item in _ordered(name, value)]}
    if isinstance(value, Counter):
        return {"$counter": [[_key(name, key), count] for key, count in value.items()]}
    if not isinstance(value, Mapping):
        hint = "store numbers, texts, lists, dicts and tensors; rebuild the rest from them"
        raise TreeInvalid(name=name, reason=f"{type(value).__name__} cannot be stored", hint=hint)
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {checked_text(name, key): inside(key, item) for key, item in value.items()}
    return {"$dict": [[_key(name, key), inside(key, item)] for key, item in value.items()]}


def _key(name: str, key: Any) -> Any:
    """A key of a dict, or a member of a set."""

    def refuse(*_: Any) -> None:
        raise TreeInvalid(name=name, reason="a tensor is a key", hint="use names or numbers as keys")

    return encode(f"{name}/key", key, refuse)


def _ordered(name: str, members: Any) -> list[Any]:
    """The members of a set in an order that does not depend on the process."""
    try:
        return sorted(members)
    except TypeError as reason:
        raise TreeInvalid(
            name=name, reason=f"a set that has no order: {reason}", hint="store a list"
        ) from reason


def decode(document: Any, fetch: Fetch) -> Any:
    """The value of a document; ``fetch`` gives tensors by name."""
    if isinstance(document, list):
        return [decode(item, fetch) for item in document]
    if not isinstance(document, dict):
        return document
    if len(document) != 1 or not next(iter(document)).startswith("$"):
        return {key: decode(item, fetch) for key, item in document.items()}
    ((kind, inner),) = document.items()
    decoders: dict[str, Callable[[], Any]] = {
        "$tensor": lambda: fetch(inner),
        "$array": lambda: fetch(inner).numpy(),
        "$bytes": lambda: base64.b64decode(inner),
        "$float": lambda: float(inner),
        "$int": lambda: int(inner),
        "$complex": lambda: complex(*(decode(part, fetch) for part in inner)),
        "$dtype": lambda: getattr(torch, inner),
        "$device": lambda: torch.device(inner),
        "$tuple": lambda: tuple(decode(item, fetch) for item in inner),
        "$set": lambda: {decode(item, fetch) for item in inner},
        "$numpy": lambda: np.dtype(inner[0]).type(decode(inner[1], fetch)),
        "$deque": lambda: deque((decode(item, fetch) for item in inner[1]), maxlen=inner[0]),
        "$counter": lambda: Counter({decode(key, fetch): count for key, count in inner}),
        "$dict": lambda: {decode(key, fetch): decode(item, fetch) for key, item in inner},
    }
    if kind not in decoders:
        raise TreeInvalid(
            name=kind, reason="nothing is known of that kind", hint="read it with a newer Penstock"
        )
    return decoders[kind]()


def fill(live: Any, loaded: Any) -> Any:
    """What was loaded, in the object that the program holds where that can be changed; else what was loaded itself."""
    if isinstance(live, MutableMapping) and isinstance(loaded, Mapping):
        items = {key: fill(_inside(live, key), item) for key, item in loaded.items()}
        live.clear()
        live.update(items)
        return live
    if isinstance(live, list | deque) and isinstance(loaded, list | deque):
        members = [fill(old, new) for old, new in zip(live, loaded, strict=False)]
        members += list(loaded)[len(members) :]
        live.clear()
        live.extend(members)
        return live
    if isinstance(live, set) and isinstance(loaded, set):
        live.clear()
        live.update(loaded)
        return live
    if isinstance(live, bytearray) and isinstance(loaded, bytes):
        live[:] = loaded
        return live
    if isinstance(live, np.ndarray) and isinstance(loaded, np.ndarray):
        # Filled through a tensor over the same memory, where it fitted.
        return (
            live
            if (live.shape, live.dtype) == (loaded.shape, loaded.dtype) and np.shares_memory(live, loaded)
            else loaded
        )
    if type(live) is tuple and type(loaded) is tuple and len(live) == len(loaded):
        return tuple(fill(old, new) for old, new in zip(live, loaded, strict=True))
    return frozenset(loaded) if isinstance(live, frozenset) and isinstance(loaded, set) else loaded


def _inside(live: MutableMapping[Any, Any], key: Any) -> Any:
    """What a mapping has for a key, or would make for it: a dict of dicts stays one."""
    factory = getattr(live, "default_factory", None)
    return live.get(key) if key in live or factory is None else factory()


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


def _scalar(name: str, value: "np.generic[Any]") -> Any:
    """A number of numpy, with its type where a number of Python would compute with other bits."""
    if value.dtype.name in _PLAIN_NUMBERS:
        return _number(value.item())
    if value.dtype.kind not in "iuf" or value.dtype.itemsize > 8:
        raise TreeInvalid(
            name=name, reason=f"a number of {value.dtype} cannot be stored", hint="store an array"
        )
    return {"$numpy": [value.dtype.name, _number(value.item())]}


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
