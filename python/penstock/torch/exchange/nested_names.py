"""Trees of torch and names of checkpoints: from nested dicts to names, and back.

Names are what ``penstock.state`` makes of a plain tree, so what is imported loads into a tree of the same form. Lists become dicts with
numbers for keys on the way back, since names do not tell them apart.
"""

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from penstock.errors import TreeInvalid, UsageError
from penstock.state.contract import Box
from penstock.state.exchange.choice import Choice
from penstock.state.manifest import Manifest
from penstock.state.tree import join_name, to_json
from penstock.torch.device.mover import SAFETENSORS_NAMES

_DEPTH_MAX = 64
#: Makes the stand-in of a tensor that is filled later.
StandIn = Callable[[str], torch.Tensor]


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every leaf with the keys that lead to it."""
    if len(path) > _DEPTH_MAX:
        raise TreeInvalid(name=join_name(path), reason=f"it is deeper than {_DEPTH_MAX}")
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from leaves(below, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for at, below in enumerate(value):
            yield from leaves(below, (*path, str(at)))
    else:
        yield path, value


def value_of(name: str, leaf: Any) -> Any:
    """A leaf that is no tensor, as manifests hold it; ``TreeInvalid`` if they cannot."""
    return to_json(name, str(leaf) if isinstance(leaf, torch.dtype | torch.device) else leaf)


def dtype_of(name: str, tensor: torch.Tensor) -> str:
    """The type of a tensor as safetensors writes it; an error for tensors that are more than their elements."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        raise TreeInvalid(
            name=name, reason=f"a {type(tensor).__name__} of {tensor.layout} cannot be imported"
        )
    if tensor.is_quantized or tensor.dtype not in SAFETENSORS_NAMES:
        raise TreeInvalid(name=name, reason=f"tensors of {tensor.dtype} cannot be imported")
    return SAFETENSORS_NAMES[tensor.dtype]


def whole(tensor: torch.Tensor) -> Box:
    """All of a tensor."""
    return Box((0,) * tensor.ndim, tuple(tensor.shape))


def nested(manifest: Manifest, choice: Choice, stand_in: StandIn) -> dict[str, Any]:
    """Chosen tensors and values as nested dicts. Tensors that a document refers to are where it has them."""
    tree: dict[str, Any] = {}
    tensors = choice.tensors(manifest.tensors)
    stand_ins = {name: stand_in(name) for name in tensors}
    placed: set[str] = set()

    def fetch(name: str) -> Any:
        placed.add(name)
        return stand_ins.get(name)

    values = {
        called: _plain(manifest.values[name], fetch) for name, called in choice.names(manifest.values).items()
    }
    for name, called in tensors.items():
        if name not in placed:
            _put(tree, called, stand_ins[name])
    for called, value in values.items():
        _put(tree, called, value)
    return tree


def _put(tree: dict[str, Any], name: str, leaf: Any) -> None:
    *way, last = (part.replace("~1", "/").replace("~0", "~") for part in name.split("/"))
    for key in way:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise UsageError(f"{name!r} is below a leaf of the tree, which dicts cannot say")
    if last in tree:
        raise UsageError(f"{name!r} is a leaf and a branch of the tree, which dicts cannot say")
    tree[last] = leaf


def _plain(value: Any, fetch: Callable[[str], Any]) -> Any:
    """A value of a manifest as torch can load it without running code."""
    if isinstance(value, list):
        return [_plain(item, fetch) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not next(iter(value)).startswith("$"):
        return {key: _plain(item, fetch) for key, item in value.items()}
    ((kind, inner),) = value.items()
    if kind == "$dict" and isinstance(inner, dict):
        return {key: _plain(item, fetch) for key, item in inner.items()}
    decoders: dict[str, Callable[[], Any]] = {
        "$int": lambda: int(inner),
        "$float": lambda: float(inner),
        "$bytes": lambda: base64.b64decode(inner),
        "$tensor": lambda: fetch(inner),
        "$array": lambda: fetch(inner),
        "$dtype": lambda: getattr(torch, inner),
        "$device": lambda: torch.device(inner),
        "$tuple": lambda: tuple(_plain(item, fetch) for item in inner),
        "$set": lambda: [_plain(item, fetch) for item in inner],
        "$counter": lambda: Counter({_plain(key, fetch): count for key, count in inner}),
        "$dict": lambda: {_plain(key, fetch): _plain(item, fetch) for key, item in inner},
    }
    return decoders[kind]() if kind in decoders else value
