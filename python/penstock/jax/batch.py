"""A batch as JAX arrays: a pytree like a dict, with the step, the digest and the origins still in reach."""

from typing import Any

from jax.tree_util import DictKey, register_pytree_with_keys_class

from penstock.data.feed.framework_batch import FrameworkBatch


@register_pytree_with_keys_class
class Batch(FrameworkBatch):
    """What a step trains on, by field.

    Made by ``jax.tree.map`` and its like it is only a dict: a step number inside the tree would compile anew every step.
    """

    def tree_flatten_with_keys(self) -> tuple[list[tuple[DictKey, Any]], tuple[str, ...]]:
        """The arrays, in the order of their names, as JAX takes dicts apart."""
        names = tuple(sorted(self))
        return [(DictKey(name), self[name]) for name in names], names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], arrays: Any) -> "Batch":
        """A batch of whatever JAX made of the arrays."""
        return cls(dict(zip(names, arrays, strict=True)))
