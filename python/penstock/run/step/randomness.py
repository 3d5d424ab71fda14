"""Random numbers of a run: every generator follows from seed, domain, step and lane by hashing, and from nothing else.

Nothing is carried from one step to the next, so a step that is executed again draws the same numbers whatever was drawn
before it, and a resumed run needs no state of generators. Ranks of one lane (tensor parallelism) draw the same numbers.
The feed draws from none of these: its order follows from its recipe.
"""

import hashlib
import random
from typing import Any

import numpy as np

#: What a domain's numbers depend on beside the seed: (step, lane).
DOMAINS = {
    "init": (False, False),
    "data": (True, False),
    "dropout": (True, True),
    "user": (True, True),
}
#: The global generators of Python and NumPy, which libraries draw from.
_GLOBAL = "user.global"


def derive(seed: int, domain: str, *, step: int = 0, lane: int = 0) -> int:
    """128 bits for a domain at a step and a lane. Domains of one's own depend on both."""
    by_step, by_lane = DOMAINS.get(domain, (True, True))
    text = f"{seed}\0{domain}\0{step if by_step else 0}\0{lane if by_lane else 0}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16, person=b"penstock.random").digest(), "little")


def numpy_generator(number: int) -> np.random.Generator:
    """A counter-based generator, so that making one costs microseconds."""
    return np.random.Generator(np.random.Philox(key=number))


def python_generator(number: int) -> random.Random:
    """One of Python's own."""
    return random.Random(number)


def kept_globals() -> tuple[Any, Any]:
    """Where Python's and NumPy's global generators stand."""
    return random.getstate(), np.random.get_state(legacy=False)


def restore_globals(kept: tuple[Any, Any]) -> None:
    """Put them back."""
    random.setstate(kept[0])
    np.random.set_state(kept[1])


def seed_globals(seed: int, *, step: int, lane: int) -> None:
    """Python's and NumPy's global generators, for a step. Those of a framework are set by the state."""
    number = derive(seed, _GLOBAL, step=step, lane=lane)
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
