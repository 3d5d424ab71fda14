"""Which registry a command works on."""

import os
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from penstock.registry import Registry

#: The option that every data command has.
Place = Annotated[
    str | None,
    Parameter(
        name="--registry",
        help="Directory or URL of the registry (default: $PENSTOCK_REGISTRY, else $PENSTOCK_HOME/registry).",
    ),
]


def open_registry(place: str | None) -> "Registry":
    """The registry that was asked for, or the default one."""
    from penstock.registry import Registry

    return Registry(place or os.environ.get("PENSTOCK_REGISTRY"))
