"""What decides bits in JAX, set where it can be set and named where it cannot.

JAX has no global generators. Its compiler reads its flags once, when the first device is asked for.
"""

import os
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import jax
from jax._src import xla_bridge

#: Without it, kernels of a GPU may add in another order every time.
FLAG = "--xla_gpu_deterministic_ops=true"


@dataclass(frozen=True, slots=True)
class Pinned:
    """What is set now, and what could not be."""

    facts: dict[str, Any]
    unpinned: tuple[str, ...]


def pin(*, deterministic: bool, threads: int | None = None) -> Pinned:
    """Set the compiler's flag, unless it has been read. Nothing here asks for a device."""
    flags = os.environ.get("XLA_FLAGS", "")
    read = bool(xla_bridge.backends_are_initialized())
    if deterministic and FLAG not in flags and not read:
        os.environ["XLA_FLAGS"] = flags = f"{flags} {FLAG}".strip()
    # Its attributes are made when JAX is imported, so type checkers do not know them.
    settings: Any = jax.config
    facts = {
        "version": jax.__version__,
        "jaxlib": version("jaxlib"),
        "flags": flags,
        "x64": bool(settings.jax_enable_x64),
        "matmul": str(settings.jax_default_matmul_precision),
    }
    late = deterministic and FLAG not in flags and read and jax.default_backend() == "gpu"
    return Pinned(facts, (f"{FLAG} was not set before the device was used",) if late else ())


def first_seed(number: int) -> None:
    """There is nothing to set."""


def key(number: int) -> jax.Array:
    """A key that follows from all 128 bits, whether JAX has 64-bit numbers or not."""
    prng_key = jax.random.key(number & 0xFFFFFFFF)
    for word in range(1, 4):
        prng_key = jax.random.fold_in(prng_key, (number >> (32 * word)) & 0xFFFFFFFF)
    return prng_key
