"""Penstock: a training runtime that brings data, state and processes to accelerators at full pressure.

Names are loaded when first used, so that ``import penstock`` costs a few milliseconds and pulls in no framework.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock import errors, events
    from penstock._rust import __version__
    from penstock.data import (
        Batch,
        Chat,
        Cursor,
        Feed,
        Filter,
        Lane,
        Map,
        Pack,
        Pad,
        Ramp,
        Recipe,
        Service,
        SkipJournal,
        Skips,
        Source,
        Tokenize,
        Truncate,
        batch_at,
        open,
    )
    from penstock.data.tap.arrays import tap
    from penstock.errors import PenstockError
    from penstock.formats.contract import Policy
    from penstock.registry import About, Registry, Version
    from penstock.run import Policy as RunPolicy
    from penstock.run import Run, Spike
    from penstock.state import Best, Checkpoint, Checkpoints, Failure, Keep

__all__ = [
    "About",
    "Batch",
    "Best",
    "Chat",
    "Checkpoint",
    "Checkpoints",
    "Cursor",
    "Failure",
    "Feed",
    "Filter",
    "Keep",
    "Lane",
    "Map",
    "Pack",
    "Pad",
    "PenstockError",
    "Policy",
    "Ramp",
    "Recipe",
    "Registry",
    "Run",
    "RunPolicy",
    "Service",
    "SkipJournal",
    "Skips",
    "Source",
    "Spike",
    "Tokenize",
    "Truncate",
    "Version",
    "__version__",
    "batch_at",
    "errors",
    "events",
    "open",
    "tap",
]

_HOME = {
    **dict.fromkeys(
        (
            "Batch",
            "Chat",
            "Cursor",
            "Feed",
            "Filter",
            "Lane",
            "Map",
            "Pack",
            "Pad",
            "Ramp",
            "Recipe",
            "Service",
            "SkipJournal",
            "Skips",
            "Source",
            "Tokenize",
            "Truncate",
            "batch_at",
            "open",
        ),
        "penstock.data",
    ),
    **dict.fromkeys(("Best", "Checkpoint", "Checkpoints", "Failure", "Keep"), "penstock.state"),
    "About": "penstock.registry",
    "PenstockError": "penstock.errors",
    "Policy": "penstock.formats.contract",
    "Registry": "penstock.registry",
    "Run": "penstock.run",
    "RunPolicy": "penstock.run",
    "Spike": "penstock.run",
    "Version": "penstock.registry",
    "__version__": "penstock._rust",
    "errors": "penstock.errors",
    "events": "penstock.events",
    "tap": "penstock.data.tap.arrays",
}


#: Names that are shorter in their own room, where nothing else has them.
_ALIASES = {"RunPolicy": "Policy"}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    module = import_module(home)
    return module if home == f"penstock.{name}" else getattr(module, _ALIASES.get(name, name))


def __dir__() -> list[str]:
    return list(__all__)
