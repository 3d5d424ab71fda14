"""What the processes of a run have to say to each other between steps."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def agree(values: Sequence[float]) -> list[list[float]]:
    """The values of every process, in the order of processes. They travel as bits: JAX may have no 64-bit numbers."""
    if jax.process_count() == 1:
        return [list(values)]
    own = np.asarray(values, np.float64).view(np.uint32)
    gathered: Any = multihost_utils.process_allgather(own)
    return [np.ascontiguousarray(row).view(np.float64).tolist() for row in np.asarray(gathered, np.uint32)]


def share(document: bytes) -> bytes:
    """What process 0 has given."""
    if jax.process_count() == 1:
        return document
    length = int(multihost_utils.broadcast_one_to_all(np.asarray([len(document)], np.int32))[0])
    room = np.zeros(max(1, length), np.uint8)
    if jax.process_index() == 0 and length:
        room[:] = np.frombuffer(document, np.uint8)
    content = np.asarray(multihost_utils.broadcast_one_to_all(room), np.uint8)
    return content[:length].tobytes()
