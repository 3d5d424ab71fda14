"""Map: a function of the user's from row to row.

A plain map is a pure function of its row. It runs before the filters and the tokenizer that follow it, while they are
measured, so it costs nothing when batches are read. A random map runs when a sample is read, last of all stages, and gets
a generator keyed by seed, source, epoch and sample.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

from penstock._rust import digest
from penstock.errors import RecipeInvalid

_HINT = 'give a function that stands in a module: Map(clean), or function = "module:clean"'
LENGTH_MAX = 1 << 31


@dataclass(frozen=True)
class Map:
    """Changes rows with a function; what the function is, is its source text and the version that is declared."""

    kind: ClassVar[str] = "map"
    #: The function, or where it stands: ``module:name``.
    function: Callable[..., Any] | str
    #: Raise it when something that the function calls changes what it gives.
    version: str = "1"
    #: Whether it draws at random; then it gets a row and a generator, and runs when a sample is read.
    random: bool = False
    #: The most elements that a random map makes of a sample; without it the length must stay.
    length_max: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.function, str):
            object.__setattr__(self, "function", _imported(self.function))
        if not inspect.isfunction(self.function) or not _is_importable(self.function):
            raise _refusal(f"must be a function of a module, got {self.function!r:.100}", _HINT)
        if not (isinstance(self.version, str) and self.version):
            raise RecipeInvalid(
                field="version", reason=f"must be a version as text, got {self.version!r:.50}", hint='"1"'
            )
        if type(self.random) is not bool:
            raise RecipeInvalid(field="random", reason=f"{self.random!r} is neither true nor false")
        if self.length_max is not None:
            if not self.random:
                hint = "leave length_max out: lengths are measured after a map that is not random"
                raise RecipeInvalid(field="length_max", reason="this map is not random", hint=hint)
            if type(self.length_max) is not int or not 1 <= self.length_max <= LENGTH_MAX:
                raise RecipeInvalid(
                    field="length_max",
                    reason=f"must be a positive number of tokens, got {self.length_max!r:.50}",
                )
        self.source_digest  # noqa: B018 - says now, not at the first row, that the source cannot be found

    @cached_property
    def source_digest(self) -> str:
        """The digest of the function as it is written."""
        try:
            text = inspect.getsource(self.called)
        except (OSError, TypeError) as reason:
            hint = "write it in a file: its source text is what tells it from others"
            raise _refusal(f"the source of {self.name} cannot be found: {reason}", hint) from reason
        return digest(textwrap.dedent(text).encode())

    @property
    def called(self) -> Callable[..., Any]:
        """The function itself."""
        assert not isinstance(self.function, str)
        return self.function

    @property
    def name(self) -> str:
        """Where the function stands."""
        return f"{self.called.__module__}:{self.called.__qualname__}"

    def document(self) -> dict[str, Any]:
        """By the function's source text and declared version, not by its place."""
        document: dict[str, Any] = {
            "kind": self.kind,
            "function": self.source_digest,
            "version": self.version,
        }
        if self.random:
            document |= {"random": True, "length_max": self.length_max}
        return document


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    if not (module and name):
        raise _refusal(f"{place!r} names no function", _HINT)
    try:
        target: Any = import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    # A user's module may raise anything while it is imported.
    except Exception as reason:
        hint = "the module must be importable here: install it, or set PYTHONPATH"
        raise _refusal(f"{place!r} cannot be imported: {type(reason).__name__}: {reason}", hint) from reason
    return target


def _is_importable(function: Callable[..., Any]) -> bool:
    """Whether another process finds the function by its name, so that the work can be fanned out."""
    target: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        target = getattr(target, part, None)
    return target is function


def _refusal(reason: str, hint: str) -> RecipeInvalid:
    return RecipeInvalid(field="function", reason=reason, hint=hint)
