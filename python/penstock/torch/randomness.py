"""Where the random generators of this process stand: Python's, NumPy's, PyTorch's on the CPU and on this rank's device.

They belong to a rank, so they travel as an entry of the rank and not in the tree.
"""

import base64
import random
from array import array
from typing import Any

import numpy as np
import torch
from torch import nn

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


def kept_by_cudnn(model: nn.Module) -> tuple[str, ...]:
    """Dropout between the layers of an LSTM, GRU or RNN on a device, in words: cuDNN draws it from a state of its own, which nobody can read, so a
    resume draws otherwise.
    """
    if not torch.backends.cudnn.enabled:
        return ()
    named = [
        name or type(module).__name__
        for name, module in model.named_modules()
        if isinstance(module, nn.RNNBase) and draws_from_cudnn(module, _device(module))
    ]
    return tuple(
        f"dropout of {name}: cuDNN keeps its random numbers, and no checkpoint has them"
        " (torch.backends.cudnn.flags(enabled=False), or nn.Dropout between layers of their own)"
        for name in named
    )


def draws_from_cudnn(module: nn.RNNBase, device: torch.device) -> bool:
    """Whether a module has dropout of its own, and cuDNN computes it."""
    return module.training and module.dropout > 0 and module.num_layers > 1 and device.type == "cuda"


def _device(module: nn.Module) -> torch.device:
    parameter = next(module.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(_bytes(text)), dtype=torch.uint8)
