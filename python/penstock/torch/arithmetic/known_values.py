"""Values that follow from shapes alone, such as causal masks made of ``arange``: how they were made is kept, and computed when asked.

Fake tensors have no numbers, yet masks decide how many pairs attention computes, and models ask tensors for booleans. What was
made from nothing but constants and shapes can be computed for real; whatever touches the batch or a parameter cannot. Random
numbers between 0 and 1 are computed twice, with both ends: what comes out the same does not depend on them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

#: Elements of a tensor that is still computed: a mask of 16,384 x 16,384 tokens.
ELEMENTS_MAX = 1 << 28
#: Operators that make tensors of constants.
_FACTORIES = frozenset(
    f"aten::{name}"
    for name in (
        "arange", "eye", "full", "full_like", "linspace", "new_full", "new_ones", "new_zeros", "ones", "ones_like",
        "scalar_tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
    )
)  # fmt: skip
_UNIFORM = frozenset({"aten::rand", "aten::rand_like"})
#: The smallest and the largest number that uniform random numbers can be.
_UNIFORM_ENDS = (0.0, 1.0 - 2.0**-24)


@dataclass(slots=True)
class _Recipe:
    """How a tensor was made; its values once they were computed."""

    operator: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    #: Changes of the tensor's memory before it was made; later ones make the recipe stale.
    version: int
    uniform: bool = False
    values: list[torch.Tensor] | None = field(default=None)


@contextmanager
def real_tensors() -> Iterator[None]:
    """Inside, operators compute, and nobody watches."""
    with unset_fake_temporarily(), _disable_current_modes(), torch.no_grad():
        yield


class KnownValues:
    """Recipes of tensors whose values follow from shapes."""

    def __init__(self) -> None:
        self._recipes = WeakTensorKeyDictionary()

    def note(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        """Keep how a result was made, if it follows from constants."""
        name = func._schema.name
        if not isinstance(result, torch.Tensor):
            return
        uniform = name in _UNIFORM
        if name in _FACTORIES or uniform:
            # Of a tensor that is only a pattern, the shape matters.
            keep: tuple[Any, ...] = tuple(
                _Pattern(arg) if isinstance(arg, torch.Tensor) else arg for arg in args
            )
        else:
            keep = args
            tensors = [leaf for leaf in tree_leaves((args, keywords)) if isinstance(leaf, torch.Tensor)]
            if not tensors or any(self._recipe(tensor) is None for tensor in tensors):
                self._recipes.pop(result, None)
                return
            keep, keywords = tree_map_only(torch.Tensor, self._recipe, (args, keywords))
        self._recipes[result] = _Recipe(func, keep, dict(keywords), result._version, uniform)

    def _recipe(self, tensor: torch.Tensor) -> "_Recipe | None":
        recipe: _Recipe | None = self._recipes.get(tensor)
        return recipe if recipe is not None and recipe.version == tensor._version else None

    def note_change(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any], before: int) -> None:
        """Keep what an operator that works in place made of its first argument."""
        target = args[0] if args else None
        if not isinstance(target, torch.Tensor):
            return
        recipe: _Recipe | None = self._recipes.get(target)
        tensors = [leaf for leaf in tree_leaves((args[1:], keywords)) if isinstance(leaf, torch.Tensor)]
        known = recipe is not None and recipe.version == before and not target._is_view()
        if not known or any(self._recipe(tensor) is None for tensor in tensors):
            self._recipes.pop(target, None)
            return
        rest, words = tree_map_only(torch.Tensor, self._recipe, (args[1:], keywords))
        # The change is counted above us, after the operator is done.
        self._recipes[target] = _Recipe(func, (recipe, *rest), words, before + 1)

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Its values; None when they are not known, too many, or depend on chance."""
        recipe = self._recipe(tensor)
        # What is expanded has the memory of what it was made from.
        if recipe is None or tensor.untyped_storage().nbytes() // tensor.element_size() > ELEMENTS_MAX:
            return None
        with real_tensors():
            values = _compute(recipe)
            if values is None or any(not torch.equal(values[0], other) for other in values[1:]):
                return None
            return values[0]

    def item(self, tensor: torch.Tensor) -> Any:
        """The one number of a tensor; None when it is not known."""
        values = self.of(tensor)
        if values is None:
            return None
        with real_tensors():
            return values.item()


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A tensor whose shape and type alone are used."""

    tensor: torch.Tensor


def _compute(recipe: _Recipe) -> list[torch.Tensor] | None:
    """Values of a recipe: one, or one for each end of what chance may give."""
    if recipe.values is not None:
        return recipe.values
    leaves = [leaf for leaf in tree_leaves((recipe.args, recipe.keywords)) if isinstance(leaf, _Recipe)]
    inputs = [_compute(leaf) for leaf in leaves]
    if any(values is None for values in inputs):
        return None
    ends = 2 if recipe.uniform else max((len(values) for values in inputs if values), default=1)
    recipe.values = [_apply(recipe, end) for end in range(ends)]
    return recipe.values


def _apply(recipe: _Recipe, end: int) -> torch.Tensor:
    def real(leaf: Any) -> Any:
        if isinstance(leaf, _Recipe):
            assert leaf.values is not None
            values = leaf.values[end if len(leaf.values) > 1 else 0]
            # Operators in place change their argument, which others may still need.
            return values.clone() if recipe.operator._schema.is_mutable else values
        if isinstance(leaf, _Pattern):
            return torch.empty(1, dtype=leaf.tensor.dtype).expand(leaf.tensor.shape)
        return leaf

    args, keywords = torch.utils._pytree.tree_map(real, (recipe.args, recipe.keywords))
    if "device" in keywords:
        keywords["device"] = torch.device("cpu")
    result: torch.Tensor = recipe.operator(*args, **keywords)
    return torch.full_like(result, _UNIFORM_ENDS[end]) if recipe.uniform else result
