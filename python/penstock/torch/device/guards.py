"""Nothing is written over before it was copied: optimizers and models wait for saves under way before they change tensors.

The waiting is done by hooks that are set once per object. On CUDA it is the stream that waits, not the Python thread.
"""

from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.optim import Optimizer

from penstock.state.contract import Copying

#: So many saves may be under way without a step in between; older ones are waited for at once.
PENDING_MAX = 4

#: Where an optimizer keeps hooks.
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_load_state_dict_pre_hooks")

_PENDING: "WeakKeyDictionary[Any, list[Copying]]" = WeakKeyDictionary()


def guard_before_change(owner: Optimizer | nn.Module, copying: Copying) -> None:
    """The next step, or the next load into it, waits for the copies."""
    if isinstance(owner, Optimizer) and not all(hasattr(owner, name) for name in _HOOKS):
        # A wrapper that was never initialised as an optimizer (timm's Lookahead) has no room for hooks.
        copying.guard()
        return
    if (pending := _PENDING.get(owner)) is None:
        pending = _PENDING[owner] = []
        if isinstance(owner, Optimizer):
            owner.register_step_pre_hook(_before_step)
            owner.register_load_state_dict_pre_hook(_before_load)
        else:
            owner.register_load_state_dict_pre_hook(_before_load)
    pending.append(copying)
    while len(pending) > PENDING_MAX:
        pending.pop(0).guard()


def settle(owner: Optimizer | nn.Module) -> None:
    """Wait for the copies now."""
    pending = _PENDING.get(owner, [])
    while pending:
        pending.pop().guard()


def _before_step(optimizer: Optimizer, *_: Any) -> None:
    settle(optimizer)


def _before_load(owner: Optimizer | nn.Module, *_: Any) -> None:
    settle(owner)
