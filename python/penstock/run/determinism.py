"""Pinning: what decides bits beside seed and data, set where it can be set, named where it cannot.

Threads, algorithms and libraries belong to frameworks, which are asked only if the program has loaded them: by their name, so
that this floor imports none.
"""

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from penstock._rust import __version__

#: Where a framework's settings are known: ``pin(deterministic=…, threads=…)`` and ``first_seed(number)``.
ROOMS = {"torch": "penstock.torch.determinism", "jax": "penstock.jax.determinism"}
#: Variables that decide bits; what they are is in the journal.
VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
    "XLA_FLAGS",
)


@dataclass(frozen=True, slots=True)
class Pins:
    """What decides bits, as it is now."""

    facts: dict[str, Any]
    #: What is not pinned, in words.
    unpinned: tuple[str, ...]
    #: By framework.
    threads: dict[str, int]


def pin(*, deterministic: bool, threads: Mapping[str, int]) -> Pins:
    """Set what can be set, in every framework that is loaded, and look at the rest.

    ``threads`` are those of an earlier life on as many ranks, by framework: other numbers give other bits.
    """
    facts: dict[str, Any] = {
        "penstock": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    unpinned = [] if deterministic else ["algorithms: the run was made without deterministic=True"]
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        unpinned.append(
            "hash seed: PYTHONHASHSEED is not set, so sets of texts have another order in every process"
        )
    counts: dict[str, int] = {}
    for name, room in _rooms().items():
        room_pins = room.pin(deterministic=deterministic, threads=threads.get(name))
        facts[name] = dict(room_pins.facts)
        unpinned += [f"{name}: {reason}" for reason in room_pins.unpinned]
        if "threads" in room_pins.facts:
            counts[name] = room_pins.facts["threads"]
    return Pins(facts, tuple(unpinned), counts)


def seed_frameworks(number: int) -> None:
    """Set the global generators of every framework that is loaded."""
    for room in _rooms().values():
        room.first_seed(number)


def _rooms() -> dict[str, Any]:
    return {name: import_module(home) for name, home in ROOMS.items() if name in sys.modules}
