"""A pytree as a tree for checkpoints: parameters, optimizer states, keys, counters, in whatever containers JAX knows."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import jax
from jax.tree_util import tree_flatten_with_path, tree_unflatten

from penstock.data import Feed, Lane
from penstock.data.feed.options import BatchKeywords
from penstock.errors import TreeInvalid
from penstock.jax import determinism, gang
from penstock.jax.compile_events import CompileEvents
from penstock.jax.lane import lane_of
from penstock.jax.loader import Loader, all_devices, loader
from penstock.jax.tensors import is_key
from penstock.observe.steps import StepRecorder
from penstock.state.contract import Copying, Held
from penstock.state.inspect.fingerprint import fingerprint
from penstock.state.tree import PlainTree


class State:
    """The tree that ``state`` makes. It satisfies ``penstock.state.contract.Tree``."""

    #: A loss is on its way when a step returns.
    deferred = True

    def __init__(self, tree: Any) -> None:
        self.rank = jax.process_index()
        self.ranks = jax.process_count()
        self._tree = tree
        self._plain, self._form, self._paths = self._flattened()
        #: Whether a step has set another tree since.
        self._stale = False

    @property
    def tree(self) -> Any:
        """The pytree. A step sets the next one, which must have the same form; loading makes a new one."""
        return self._tree

    @tree.setter
    def tree(self, tree: Any) -> None:
        self._tree = tree
        self._stale = True

    def _flatten(self) -> PlainTree:
        """The leaves by name, as they are now."""
        if self._stale:
            self._plain, self._form, self._paths = self._flattened()
            self._stale = False
        return self._plain

    def _flattened(self) -> tuple[PlainTree, Any, list[tuple[str, ...]]]:
        leaves, form = tree_flatten_with_path(self._tree)
        paths = [tuple(_key(step) for step in path) for path, _ in leaves]
        return PlainTree(_nested(paths, [leaf for _, leaf in leaves]), self.rank, self.ranks), form, paths

    def held(self) -> list[Held]:
        """Every array, as far as this process holds it."""
        return self._flatten().held()

    def values(self) -> dict[str, Any]:
        """Every leaf that is no array, and how keys make random numbers."""
        return self._flatten().values()

    def load_values(self, values: dict[str, Any]) -> None:
        """Take values back."""
        for name, kind in self._flatten().values().items():
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
            node: Any = self._plain.root
            for part in path:
                node = node[part]
            leaves.append(node["key"] if isinstance(node, dict) else node)
        self.tree = tree_unflatten(self._form, leaves)

    def lane_of(self, **wanted: Unpack[BatchKeywords]) -> Lane:
        """The rows that this process's devices hold."""
        axis = wanted.get("axis", "data")
        return lane_of(wanted.get("mesh") or all_devices(axis), axis)

    def batches(self, feed: Feed, **wanted: Unpack[BatchKeywords]) -> Loader:
        """Batches of global arrays."""
        keywords: dict[str, Any] = dict(wanted)
        return loader(feed, **keywords)

    def agree(self, values: Sequence[float]) -> list[list[float]]:
        """The values of every process, in their order."""
        return gang.agree(values)

    def to_host(self, value: Any) -> Any:
        """A value on its way to the host."""
        if isinstance(value, jax.Array) and value.is_fully_addressable:
            value.copy_to_host_async()
        return value

    def share(self, document: bytes) -> bytes:
        """What process 0 has given."""
        return gang.share(document)

    def seed(self, number: int) -> None:
        """JAX has no global generators."""

    def generator(self, number: int) -> jax.Array:
        """A key."""
        return determinism.key(number)

    def digest(self) -> bytes:
        """16 bytes that follow from every array that this process holds."""
        return fingerprint(self.held())

    def observe(self, recorder: StepRecorder) -> CompileEvents:
        """Tell a recorder what is compiled, until what is returned is closed. A call of the step is dispatch: ``run.span("forward")`` tells it from your own code."""
        return CompileEvents(recorder)

    def timer(self) -> None:
        """JAX tells nobody when a part of a compiled step is over."""

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
            raise TreeInvalid(
                name="",
                reason="a tree must have branches, got a bare leaf",
                hint='give a dict: {"params": …}',
            )
        inside = root
        for part in path[:-1]:
            inside = inside.setdefault(part, {})
        if path[-1] in inside or not isinstance(inside, Mapping):
            raise TreeInvalid(name="/".join(path), reason="two leaves have this name", hint="rename a key")
        inside[path[-1]] = {"key": leaf, "impl": str(jax.random.key_impl(leaf))} if is_key(leaf) else leaf
    return root
