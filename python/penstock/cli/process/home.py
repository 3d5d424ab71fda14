"""Where jobs live."""

import os
from pathlib import Path


def home() -> Path:
    """The directory of everything that Penstock keeps for a person."""
    return Path(os.environ.get("PENSTOCK_HOME", Path.home() / ".penstock"))
