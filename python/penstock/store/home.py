"""Where everything is that Penstock keeps for one user: ``$PENSTOCK_HOME``, else ``.penstock`` in the home directory."""

import os
from pathlib import Path

from penstock.errors import UsageError

_VARIABLE = "PENSTOCK_HOME"


def penstock_home() -> Path:
    """The folder; an error where neither the environment nor the system knows one, as for a bare user id in a container."""
    named = os.environ.get(_VARIABLE)
    try:
        # An empty variable is one that was not set.
        return Path(named).expanduser() if named else Path.home() / ".penstock"
    except RuntimeError as reason:
        hint = f"set {_VARIABLE} to a folder that you may write, or HOME"
        raise UsageError("this user has no home directory", hint=hint) from reason
