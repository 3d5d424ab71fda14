"""Which registry a command works on, and where it keeps what it derives.

The first that there is: ``--registry``; what the recipe names (``registry = "…"``); ``$PENSTOCK_REGISTRY``; a folder ``registry`` beside
the recipe, or in the nearest folder above it that has one; ``$PENSTOCK_HOME/registry``.
"""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from penstock.registry import Registry


@dataclass(frozen=True, slots=True)
class RegistryPlace:
    """A registry, and its scratch."""

    registry: Annotated[
        str | None,
        Parameter(
            name="--registry",
            help=(
                "Directory or URL of the registry (default: what the recipe names, else $PENSTOCK_REGISTRY, "
                "else a folder `registry` beside the recipe or above it, else $PENSTOCK_HOME/registry)."
            ),
        ),
    ] = None
    scratch: Annotated[
        str | None,
        Parameter(
            name="--scratch",
            help="Only read the registry, and keep derived data in this directory "
            "(default: none, or below $PENSTOCK_HOME/scratch where the registry may not be written).",
        ),
    ] = None

    def words(self) -> str:
        """As it was written on the command line."""
        options = {"--registry": self.registry, "--scratch": self.scratch}
        return " ".join(
            f"{name} {shlex.quote(value)}" for name, value in options.items() if value is not None
        )


#: The options that every data command has.
Place = Annotated[RegistryPlace | None, Parameter(name="*")]
#: What a registry is called when it is looked for, and a folder that every registry has.
_NAME, _INSIDE = "registry", "datasets"
#: Folders above a recipe that are looked into.
_LEVELS_MAX = 16


def open_registry(place: RegistryPlace | None, *, recipe: str | os.PathLike[str] | None = None) -> "Registry":
    """The registry that was asked for, the recipe's own, or the default one."""
    from penstock.registry import Registry

    asked = place or RegistryPlace()
    named = asked.registry or _named_by(recipe) or os.environ.get("PENSTOCK_REGISTRY")
    return Registry(named or (None if recipe is None else beside(recipe)), scratch=asked.scratch)


def beside(recipe: str | os.PathLike[str]) -> Path | None:
    """The registry beside a recipe's file, or in the nearest folder above it; never one of a stranger, as /tmp may hold it."""
    file = Path(recipe).absolute()
    for above in [*file.parents][:_LEVELS_MAX]:
        candidate = above / _NAME
        try:
            trusted = {os.getuid(), file.stat().st_uid}
            if (candidate / _INSIDE).is_dir() and candidate.stat().st_uid in trusted:
                return candidate
        except OSError:
            continue
    return None


def _named_by(recipe: str | os.PathLike[str] | None) -> str | None:
    if recipe is None:
        return None
    from penstock.data import Recipe

    return Recipe.load(recipe).registry or None
