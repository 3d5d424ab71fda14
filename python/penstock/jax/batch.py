"""A batch as JAX arrays: a pytree like a dict, with the step, the digest and the origins still in reach."""

from collections.abc import Mapping
from typing import Any

import jax
from jax.tree_util import DictKey, register_pytree_with_keys_class

from penstock.data import Batch as HostBatch
from penstock.data import Origin
from penstock.errors import UsageError


@register_pytree_with_keys_class
class Batch(dict[str, jax.Array]):
    """What a step trains on, by field.

    Made by ``jax.tree.map`` and its like it is only a dict: a step number inside the tree would compile anew every step.
    """

    def __init__(self, arrays: Mapping[str, Any], *, of: HostBatch | None = None) -> None:
        super().__init__(arrays)
        self._of = of

    @property
    def step(self) -> int:
        """The step of the recipe; ``loader.state_dict(after=batch.step)`` resumes after it."""
        return self._host().step

    @property
    def digest(self) -> str:
        """A hash of this process's rows, the same in every framework; see ``penstock.data.join`` for the whole step's."""
        return self._host().digest

    def origin(self, row: int) -> list[Origin]:
        """What a row of this process is made of, in order: version, shard, sample, bytes and tokens."""
        return self._host().origin(row)

    def tree_flatten_with_keys(self) -> tuple[list[tuple[DictKey, Any]], tuple[str, ...]]:
        """The arrays, in the order of their names, as JAX takes dicts apart."""
        names = tuple(sorted(self))
        return [(DictKey(name), self[name]) for name in names], names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], arrays: Any) -> "Batch":
        """A batch of whatever JAX made of the arrays."""
        return cls(dict(zip(names, arrays, strict=True)))

    def __reduce__(self) -> tuple[Any, ...]:
        # The way back to the feed's memory does not travel between processes; the arrays do.
        return type(self), (dict(self),)

    def __repr__(self) -> str:
        step = "rebuilt" if self._of is None else f"step {self._of.step}"
        shown = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in self.items())
        return f"<Batch {step}, {shown}>"

    def _host(self) -> HostBatch:
        if self._of is None:
            raise UsageError(
                "this batch was rebuilt from bare arrays, so its step and origins are not known",
                hint="take them from the batch that the loader gave, before it goes through a tree function",
            )
        return self._of
