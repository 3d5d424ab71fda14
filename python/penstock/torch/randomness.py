"""Where the random generators of this process stand: Python's, NumPy's, PyTorch's on the CPU and on this rank's device.

They belong to a rank, so they travel as an entry of the rank and not in the tree.
"""

import base64
import random
from array import array
from typing import Any

import numpy as np
import torch

from penstock.errors import TreeInvalid

#: Whoever gives an entry "rng" of their own keeps it.
ENTRY = "torch.rng"


def capture() -> dict[str, Any]:
    """Where every generator stands, as JSON."""
    version, words, gauss = random.getstate()
    name, keys, at, has_gauss, cached = np.random.get_state(legacy=True)
    states = {
        "python": {"version": version, "words": _text(array("Q", words).tobytes()), "gauss": gauss},
        "numpy": {
            "name": name,
            "keys": _text(np.asarray(keys, np.uint32).tobytes()),
            "at": int(at),
            "gauss": [int(has_gauss), float(cached)],
        },
        "torch": _text(torch.get_rng_state().numpy().tobytes()),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = _text(torch.cuda.get_rng_state().numpy().tobytes())
    return states


def restore(states: dict[str, Any]) -> None:
    """Put generators back; those that are not named, or not here, stay."""
    try:
        if saved := states.get("python"):
            words = array("Q", _bytes(saved["words"]))
            random.setstate((saved["version"], tuple(words), saved["gauss"]))
        if saved := states.get("numpy"):
            keys = np.frombuffer(_bytes(saved["keys"]), np.uint32)
            np.random.set_state((saved["name"], keys, saved["at"], *saved["gauss"]))
        if saved := states.get("torch"):
            torch.set_rng_state(_tensor(saved))
        if (saved := states.get("cuda")) and torch.cuda.is_available():
            torch.cuda.set_rng_state(_tensor(saved))
    except (KeyError, TypeError, ValueError, RuntimeError) as reason:
        raise TreeInvalid(name=ENTRY, reason=f"no state of a random generator: {reason}") from reason


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(_bytes(text)), dtype=torch.uint8)
