"""Which registry a command works on, and where it keeps what it derives."""

import os
import shlex
from dataclasses import dataclass
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
            help="Directory or URL of the registry (default: $PENSTOCK_REGISTRY, else $PENSTOCK_HOME/registry).",
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
        given = {"--registry": self.registry, "--scratch": self.scratch}
        return " ".join(f"{name} {shlex.quote(value)}" for name, value in given.items() if value is not None)


#: The options that every data command has.
Place = Annotated[RegistryPlace | None, Parameter(name="*")]


def open_registry(place: RegistryPlace | None) -> "Registry":
    """The registry that was asked for, or the default one."""
    from penstock.registry import Registry

    asked = place or RegistryPlace()
    return Registry(asked.registry or os.environ.get("PENSTOCK_REGISTRY"), scratch=asked.scratch)
