"""Plain trees: nested dicts, lists and tuples whose leaves are tensors and plain values.

A leaf's own library says how its bytes are reached: numpy arrays here, torch and jax in their rooms, which are asked for by the
name of the library that the leaf comes from, so that this room imports neither.
"""

import base64
import math
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import numpy as np

from penstock.errors import TreeInvalid
from penstock.state.contract import Copying, Held, Tree
from penstock.state.load import host_mover as host

#: Where the tensors of a library are known: ``held_of(name, leaf, rank, ranks)``, and ``finished(leaf, held)`` where leaves cannot be
#: filled in place.
ROOMS = {
    "torch": "penstock.torch.tree.tensors",
    "jax": "penstock.jax.tensors",
    "jaxlib": "penstock.jax.tensors",
}
_DEPTH_MAX = 64


def as_tree(state: Any, rank: int = 0, ranks: int = 1) -> Tree:
    """A state as a tree: itself, if it knows its own parts."""
    if is_tree(state):
        known: Tree = state
        return known
    return PlainTree(state, rank, ranks)


def is_tree(state: Any) -> bool:
    """Whether a state knows its own parts, and which rank it is of."""
    return hasattr(state, "held") and hasattr(state, "values")


def group_of_program() -> Any:
    """What talks to the other ranks of this program: the room of a library whose process group exists, or None.

    It has ``rank_and_ranks()`` and ``exchange(document)``.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return import_module("penstock.torch.gang")


def exchange_of(state: Any, rank: int, ranks: int) -> Callable[[bytes], list[bytes]] | None:
    """How the ranks of a state talk to each other: its own way, or the program's, if its ranks are the same ones."""
    own: Callable[[bytes], list[bytes]] | None = getattr(state, "exchange", None)
    if own is not None:
        return own
    group = group_of_program()
    if group is None or group.rank_and_ranks() != (rank, ranks):
        return None
    exchange: Callable[[bytes], list[bytes]] = group.exchange
    return exchange


class PlainTree:
    """A nested dict, list or tuple as the state of one rank."""

    def __init__(self, root: Any, rank: int = 0, ranks: int = 1) -> None:
        if not isinstance(root, Mapping | list | tuple):
            raise TreeInvalid(
                name="",
                reason=f"a tree must be a dict, list or tuple, got {type(root).__name__}",
                hint='give a dict: {"model": …}',
            )
        self.root = root
        self.rank = rank
        self.ranks = ranks
        self._values: dict[str, Any] = {}
        #: What was loaded for leaves that are not filled in place.
        self._new: dict[str, Any] = {}
        self._leaves: dict[str, tuple[Any, list[Held]]] = {}
        for name, leaf in _leaves(root, (), 0):
            if name in self._values or name in self._leaves:
                raise TreeInvalid(
                    name=name,
                    reason="two leaves have this name",
                    hint="rename a key: 1 and '1' give the same name",
                )
            if (room := _room(leaf)) is None:
                self._values[name] = to_json(name, leaf)
                continue
            held = room.held_of(name, leaf, rank, ranks)
            self._leaves[name] = (leaf, held if isinstance(held, list) else [held])

    def held(self) -> list[Held]:
        """Every tensor."""
        return [held for _, parts in self._leaves.values() for held in parts]

    def values(self) -> dict[str, Any]:
        """Everything else."""
        return self._values

    def load_values(self, values: dict[str, Any]) -> None:
        """Take values back."""
        self._new.update({name: from_json(value) for name, value in values.items() if name in self._values})

    def loaded(self) -> None:
        """Put new leaves where old ones were."""
        for name, (leaf, held) in self._leaves.items():
            finished = getattr(_room(leaf), "finished", None)
            if finished is not None:
                self._new[name] = finished(leaf, held)
        self.root = _rebuilt(self.root, (), self._new)

    def entries(self) -> dict[str, Any]:
        """A plain tree has no entries of its own."""
        return {}

    def load_entries(self, entries: dict[str, Any]) -> None:
        """A plain tree has no entries of its own."""

    def on_save(self, copying: Copying) -> None:
        """Nobody here knows when tensors are written to: wait for the copies."""
        copying.wait()


class _Numbers:
    """Single numbers of numpy: saved as tensors without dimensions, and made anew when loaded."""

    @staticmethod
    def held_of(name: str, leaf: Any, rank: int, ranks: int) -> Held:
        return host.held_of(name, np.array(leaf), rank, ranks)

    @staticmethod
    def finished(leaf: Any, held: list[Held]) -> Any:
        return held[0].memory.view(leaf.dtype)[0]


def _room(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return host
    if isinstance(leaf, np.generic):
        return _Numbers
    for kind in type(leaf).__mro__:
        home = ROOMS.get(kind.__module__.partition(".")[0])
        if home is not None:
            return import_module(home)
    return None


def _leaves(value: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[str, Any]]:
    if depth > _DEPTH_MAX:
        raise TreeInvalid(name=join_name(path), reason=f"it is deeper than {_DEPTH_MAX}")
    if isinstance(value, Mapping):
        if not isinstance(value, MutableMapping):
            _made_anew(join_name(path), value, dict(value))
        for key, below in value.items():
            if not isinstance(key, str | int):
                raise TreeInvalid(
                    name=join_name(path), reason=f"the key {key!r} is neither text nor a number"
                )
            yield from _leaves(below, (*path, checked_text(join_name(path), str(key))), depth + 1)
    elif isinstance(value, list | tuple):
        for at, below in enumerate(value):
            yield from _leaves(below, (*path, str(at)), depth + 1)
    else:
        yield join_name(path), value


def _rebuilt(value: Any, path: tuple[str, ...], new: dict[str, Any]) -> Any:
    """The same tree with new leaves; dicts and lists stay the objects that they are."""
    if isinstance(value, Mapping):
        items = {key: _rebuilt(below, (*path, str(key)), new) for key, below in value.items()}
        if not isinstance(value, MutableMapping):
            return _made_anew(join_name(path), value, items)
        for key, below in items.items():
            value[key] = below
        return value
    if isinstance(value, list):
        value[:] = [_rebuilt(below, (*path, str(at)), new) for at, below in enumerate(value)]
        return value
    if isinstance(value, tuple):
        parts = [_rebuilt(below, (*path, str(at)), new) for at, below in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return new.get(join_name(path), value)


def _made_anew(name: str, old: Mapping[Any, Any], items: dict[Any, Any]) -> Mapping[Any, Any]:
    """A mapping that cannot be written to, such as a frozen dict, with other contents."""
    try:
        new: Mapping[Any, Any] = type(old)(items)  # type: ignore[call-arg]
        if new.keys() == items.keys():
            return new
        reason: Exception | str = "it has other keys then"
    except (TypeError, ValueError, AttributeError) as problem:
        reason = problem
    raise TreeInvalid(
        name=name, reason=f"a {type(old).__name__} cannot be made from a dict: {reason}", hint="give a dict"
    )


def checked_text(name: str, text: str) -> str:
    """A text that can be stored: names of files may have bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        hint = "store bytes: os.fsencode(text), or text.encode(errors='surrogateescape')"
        raise TreeInvalid(
            name=ascii(name), reason=f"text must be valid in UTF-8, got {text!a}", hint=hint
        ) from problem
    return text


def join_name(path: tuple[str, ...]) -> str:
    """The name of a path: its parts joined by ``/``, with ``~`` and ``/`` inside a part written ``~0`` and ``~1``."""
    return "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)


def to_json(name: str, value: Any) -> Any:
    """A plain value as JSON can hold it; NaN, infinities, large numbers and bytes are marked."""
    if value is None or isinstance(value, bool | str):
        return checked_text(name, value) if isinstance(value, str) else value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else {"$int": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, bytes | bytearray):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [to_json(name, item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        inner = {checked_text(name, key): to_json(name, item) for key, item in value.items()}
        return {"$dict": inner} if any(key.startswith("$") for key in inner) else inner
    raise TreeInvalid(
        name=name,
        reason=f"a {type(value).__name__} is neither a tensor nor a plain value",
        hint="save its parts, or put it into entries as text",
    )


def from_json(value: Any) -> Any:
    """The other way."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((mark, inner),) = value.items()
        if mark in _MARKS:
            return _MARKS[mark](inner)
    return {key: from_json(item) for key, item in value.items()}


_MARKS: dict[str, Callable[[Any], Any]] = {
    "$int": int,
    "$float": float,
    "$bytes": base64.b64decode,
    # A dict some of whose keys look like marks.
    "$dict": lambda inner: {key: from_json(item) for key, item in inner.items()},
}
