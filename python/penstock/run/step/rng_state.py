"""Where generators stand at the end of a step, in four bytes each, so that one draw more or less is seen and named.

Taken of Python's and NumPy's global generators, of what the state's framework has (``standing()``, if the state knows it: its generators, and the number of its
threads, which decides bits too), and of every generator that the run gave out in the step, by domain.
"""

import ctypes
import random
import zlib
from typing import Any

import numpy as np

from penstock.run.contract import Trainable

_MASK = 0xFFFFFFFF
#: 624 words and the place among them.
_TWISTER_BYTES = 4 * 625


class Standing:
    """Looks at the end of every step."""

    def __init__(self, state: Trainable) -> None:
        self._of_framework = getattr(state, "standing", dict)
        #: What was given out since the step began.
        self._given: list[tuple[str, Any]] = []

    def begin(self) -> None:
        """A step begins."""
        self._given.clear()

    def gave(self, domain: str, generator: Any) -> None:
        """The run gave a generator out."""
        self._given.append((domain, generator))

    def now(self) -> dict[str, int]:
        """Of everything, by name."""
        sums = {"python": _of_python(random.getstate()), "numpy": _of_numpy_global()}
        sums |= self._of_framework()
        for domain, generator in self._given:
            sums[domain] = zlib.crc32(of(generator).to_bytes(4, "little"), sums.get(domain, 0))
        return sums


def of(generator: Any) -> int:
    """Of one generator of any kind; 0 where it cannot be told."""
    if isinstance(generator, random.Random):
        return _of_python(generator.getstate())
    if isinstance(generator, np.random.Generator):
        return _of_numpy(generator.bit_generator.state)
    if hasattr(generator, "get_state"):
        return zlib.crc32(generator.get_state().numpy())
    return 0


def _of_numpy_global() -> int:
    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]  # of NumPy 1.24 and later
    if isinstance(generator, np.random.MT19937):
        # Its document costs forty times as much to make as it takes to look at its memory.
        return zlib.crc32(ctypes.string_at(generator.ctypes.state_address, _TWISTER_BYTES))
    return _of_numpy(generator.state)


def _of_python(state: Any) -> int:
    # Hashes of numbers and of tuples of them are the same in every process; that of None is not.
    numbers, spare = state[1], state[2]
    return (hash(numbers) ^ hash(-1.0 if spare is None else spare)) & _MASK


def _of_numpy(state: Any) -> int:
    """Over everything in the document of a bit generator, in its order."""
    checksum = 0
    for value in state.values():
        if isinstance(value, dict):
            checksum = zlib.crc32(_of_numpy(value).to_bytes(4, "little"), checksum)
        elif isinstance(value, np.ndarray):
            checksum = zlib.crc32(value.tobytes(), checksum)
        else:
            checksum = zlib.crc32(repr(value).encode(), checksum)
    return checksum
