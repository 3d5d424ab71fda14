"""A pytree as a tree for checkpoints: parameters, optimizer states, keys, counters, in whatever containers JAX knows."""

from collections.abc import Mapping
from typing import Any

import jax
from jax.tree_util import tree_flatten_with_path, tree_unflatten

from penstock.errors import TreeInvalid
from penstock.jax.tensors import is_key
from penstock.state.contract import Copying, Held
from penstock.state.tree import PlainTree


class State:
    """See ``state``. It satisfies ``penstock.state.contract.Tree``."""

    def __init__(self, tree: Any) -> None:
        #: The pytree; a new one after loading.
        self.tree = tree
        self.rank = jax.process_index()
        self.ranks = jax.process_count()
        leaves, self._form = tree_flatten_with_path(tree)
        self._paths = [tuple(_key(step) for step in path) for path, _ in leaves]
        self._plain = PlainTree(_nested(self._paths, [leaf for _, leaf in leaves]), self.rank, self.ranks)

    def held(self) -> list[Held]:
        """Every array, as far as this process holds it."""
        return self._plain.held()

    def values(self) -> dict[str, Any]:
        """Every leaf that is no array, and how keys make random numbers."""
        return self._plain.values()

    def load_values(self, values: dict[str, Any]) -> None:
        """Take values back."""
        for name, kind in self._plain.values().items():
            if name.endswith("/impl") and values.get(name, kind) != kind:
                reason = f"a key of {values[name]} was saved, but this one is of {kind}"
                raise TreeInvalid(
                    name=name, reason=reason, hint="make the key with jax.random.key(…, impl=…)"
                )
        self._plain.load_values(values)

    def loaded(self) -> None:
        """Make the new tree."""
        self._plain.loaded()
        leaves = []
        for path in self._paths:
            found: Any = self._plain.root
            for part in path:
                found = found[part]
            leaves.append(found["key"] if isinstance(found, dict) else found)
        self.tree = tree_unflatten(self._form, leaves)

    def entries(self) -> dict[str, Any]:
        """JAX keeps no random state of its own: keys are leaves."""
        return {}

    def load_entries(self, entries: dict[str, Any]) -> None:
        """There are none."""

    def on_save(self, copying: Copying) -> None:
        """Nothing can be written to, and what may be donated was copied at once."""


def state(tree: Any) -> State:
    """Make a pytree ready for ``ps.Checkpoints``: save it, or load into it and go on with the new ``tree`` that it then has.

    Leaves are arrays (sharded over any mesh, also ones that are only described: ``jax.ShapeDtypeStruct`` with a sharding), keys, numpy
    arrays and plain values; names are the paths through the tree. A checkpoint of any mesh loads into any other.
    """
    return State(tree)


def _key(step: Any) -> str:
    """One step of a path through a pytree: a key, an index, the name of a field."""
    for field in ("key", "idx", "name"):
        if hasattr(step, field):
            return str(getattr(step, field))
    return str(step)


def _nested(paths: list[tuple[str, ...]], leaves: list[Any]) -> dict[str, Any]:
    """The leaves in plain dicts."""
    root: dict[str, Any] = {}
    for path, leaf in zip(paths, leaves, strict=True):
        if not path:
            raise TreeInvalid(name="", reason="a bare leaf is no tree", hint='give a dict: {"params": …}')
        inside = root
        for part in path[:-1]:
            inside = inside.setdefault(part, {})
        if path[-1] in inside or not isinstance(inside, Mapping):
            raise TreeInvalid(name="/".join(path), reason="two leaves have this name", hint="rename a key")
        inside[path[-1]] = {"key": leaf, "impl": str(jax.random.key_impl(leaf))} if is_key(leaf) else leaf
    return root
