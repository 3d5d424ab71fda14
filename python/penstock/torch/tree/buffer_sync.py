"""Whether DistributedDataParallel takes buffers from its first rank before its next pass, or leaves each rank its own.

It does not after a pass under ``no_sync`` or without gradients, and remembers that in an attribute that no ``state_dict`` has. A resumed
program has to do the same, or ranks go on with other buffers than they had.
"""

from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

#: The entry of a rank that says which wrappers leave buffers alone.
ENTRY = "torch.buffer_sync"


def syncs(wrapper: nn.Module) -> bool:
    """Whether its next pass begins with the buffers of its first rank."""
    return bool(
        getattr(wrapper, "broadcast_buffers", False) and getattr(wrapper, "require_forward_param_sync", True)
    )


def entry_of(model: nn.Module, ranks: int) -> dict[str, Any]:
    """What a load has to know: nothing in most cases. ``ranks`` belong to it, because all of them have to do the same."""
    waiting = [number for number, wrapper in enumerate(_wrappers(model)) if not syncs(wrapper)]
    return {ENTRY: {"ranks": ranks, "waiting": waiting}} if waiting else {}


def load(model: nn.Module, entries: dict[str, Any], ranks: int) -> None:
    """Let wrappers do what they would have done. On another number of ranks there are no buffers of each rank's own to leave alone."""
    known = entries.get(ENTRY, {})
    waiting = known["waiting"] if known.get("ranks") == ranks else ()
    for number, wrapper in enumerate(_wrappers(model)):
        wrapper.require_forward_param_sync = number not in waiting


def _wrappers(model: nn.Module) -> list[DistributedDataParallel]:
    return [
        module
        for module in model.modules()
        if isinstance(module, DistributedDataParallel) and module.broadcast_buffers
    ]
