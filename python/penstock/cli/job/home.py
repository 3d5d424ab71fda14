"""Where jobs live."""

from pathlib import Path


def home() -> Path:
    """The directory of everything that Penstock keeps for a person."""
    from penstock.store.home import penstock_home

    return penstock_home()
