"""How fast this host's processors get on now: a fixed piece of work, again and again for a short time, in one process.

What counts is how much was done in the time, so a quota, a neighbour that takes its share, and clocks that fell all show. No framework is needed.
"""

import hashlib
import time

PIECE = bytes(64 << 10)
#: Shortest time that says something: longer than the period of a quota of processors (0.1 s).
SECONDS = 0.5


def processor_rate(seconds: float = SECONDS) -> float:
    """Bytes hashed per second of the clock on the wall."""
    begun, done = time.perf_counter(), 0
    while (taken := time.perf_counter() - begun) < seconds:
        hashlib.sha256(PIECE).digest()
        done += len(PIECE)
    return done / taken
