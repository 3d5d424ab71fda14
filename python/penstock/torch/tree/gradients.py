"""Pending gradients: those that were written since an optimizer that has the parameter last stepped.

A loop that accumulates over several steps may be saved between them; what lies in ``.grad`` then is state like the parameters. After an ordinary
step it is not: ``zero_grad(); backward(); step()`` leaves gradients behind that nobody reads again, and they are as large as the model. Which is
which is told by a mark: after a step every gradient that the optimizer saw carries its version. A gradient that is written to afterwards has
another version, and one that is made anew has no mark.

Ranks have gradients of their own (under ``no_sync`` they differ), so they are kept per rank.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from penstock.errors import TreeInvalid
from penstock.torch.device.mover import TORCH_TYPES
from penstock.torch.tree.documents import escaped
from penstock.torch.tree.layout import local_of

ROOT = "gradient"
#: The entry of a rank that names gradients which are zero.
ENTRY = "torch.gradients"
_MARK = "_penstock_spent"
#: Of a gradient that more than one step has used: ``zero_grad(set_to_none=False)`` keeps it, and optimizers tell zeros from nothing.
_REUSED = "_penstock_reused"


def _after_step(optimizer: Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if (gradient := parameter.grad) is not None:
                if hasattr(gradient, _MARK):
                    setattr(gradient, _REUSED, True)
                setattr(gradient, _MARK, _version(gradient))


# For all optimizers, from now on: a state may be made when training is over, and has to know then what was used up.
register_optimizer_step_post_hook(_after_step)


def _version(gradient: torch.Tensor) -> int:
    # Reduced gradients are added to the local part of a DTensor, behind its back.
    return int(getattr(gradient, "_local_tensor", gradient)._version)


def is_pending(gradient: torch.Tensor | None) -> bool:
    """Whether a gradient was written to since an optimizer used it."""
    return gradient is not None and getattr(gradient, _MARK, -1) != _version(gradient)


class Gradients:
    """The gradients of the parameters that some optimizers have."""

    def __init__(self, optimizers: Sequence[Optimizer], names: Mapping[int, str]) -> None:
        self._names = names
        self._members = [
            parameter
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) in names
        ]

    @cached_property
    def _parameters(self) -> dict[str, torch.Tensor]:
        return {self._name(parameter): parameter for parameter in self._members}

    def _name(self, parameter: torch.Tensor) -> str:
        return f"{ROOT}/{escaped(self._names[id(parameter)])}"

    def pending(self) -> dict[str, torch.Tensor]:
        """Gradients that are state, by name."""
        return {
            self._name(parameter): gradient
            for parameter in self._members
            if (gradient := parameter.grad) is not None and is_pending(gradient)
        }

    def reused(self) -> list[str]:
        """Names of those that are used up and will be zeroed, not thrown away: a parameter that the next pass leaves out has zeros then."""
        names = [
            self._name(parameter)
            for parameter in self._members
            if hasattr(gradient := parameter.grad, _REUSED) and not is_pending(gradient)
        ]
        return list(dict.fromkeys(names))

    def rooms(self, kinds: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, torch.Tensor]:
        """Room for the gradients that a checkpoint has; they become those of their parameters when they are filled."""
        rooms = {}
        for name, parameter in self._parameters.items():
            if name in kinds:
                rooms[name] = torch.zeros_like(parameter.detach(), dtype=TORCH_TYPES[kinds[name][0]])
        return rooms

    def put(self, filled: Mapping[str, torch.Tensor]) -> None:
        """Make these the gradients, and no others: what was pending here belongs to steps that a load has undone."""
        for name, parameter in self._parameters.items():
            if name in filled:
                parameter.grad = filled[name]
            elif is_pending(parameter.grad):
                parameter.grad = None

    def put_zeros(self, names: Iterable[str]) -> None:
        """Gradients that were zero when they were saved."""
        for name in names:
            if (parameter := self._parameters.get(name)) is not None:
                gradient = parameter.grad = torch.zeros_like(parameter.detach())
                setattr(gradient, _REUSED, True)
                setattr(gradient, _MARK, _version(gradient))


def zeros_among(pending: Mapping[str, torch.Tensor]) -> list[str]:
    """Those that ``zero_grad(set_to_none=False)`` has left: one change since the step, and nothing in them. Their names are enough."""
    touched_once = {
        name: gradient
        for name, gradient in pending.items()
        if getattr(gradient, _MARK, -2) + 1 == _version(gradient) and gradient.layout is torch.strided
    }
    if not touched_once:
        return []
    # One answer of the device for all of them.
    full = torch.stack([local_of(gradient).any().reshape(()) for gradient in touched_once.values()])
    return [name for name, some in zip(touched_once, full.tolist(), strict=True) if not some]


def unowned(model: nn.Module, optimizers: Sequence[Optimizer]) -> tuple[str, ...]:
    """In words: gradients that no optimizer tells about, so that nobody knows whether they are used up. They are not saved."""
    owned = {
        id(parameter)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    if not any(_is_unowned(parameter, owned) for parameter in _all_parameters(model)):
        return ()
    names = [name for name, parameter in model.named_parameters() if _is_unowned(parameter, owned)]
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    advice = "set it to None before every backward pass, or requires_grad_(False)"
    text = (
        f"the gradient of {names[0]}{others} belongs to no optimizer of the state and is not saved: {advice}"
    )
    return (text,)


def _all_parameters(model: nn.Module) -> Iterator[torch.Tensor]:
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                yield parameter


def _is_unowned(parameter: torch.Tensor, owned: set[int]) -> bool:
    return id(parameter) not in owned and parameter.grad is not None


def counted_elsewhere(optimizers: Sequence[Optimizer]) -> tuple[str, ...]:
    """In words: gradients are pending, and it is a count of Accelerate's that says when its wrapper of an optimizer steps. No state has that count."""
    for wrapper in optimizers:
        steps = getattr(getattr(wrapper, "gradient_state", None), "num_steps", 1)
        members = (parameter for group in wrapper.param_groups for parameter in group["params"])
        if isinstance(steps, int) and steps > 1 and any(is_pending(parameter.grad) for parameter in members):
            text = (
                f"Accelerate counts the {steps} batches of an accumulation by itself, and begins at 0 in a resumed program: set accelerator.step = step when a "
                f"step begins, or save only after steps of the optimizer, every {steps} batches"
            )
            return (text,)
    return ()


def refuse_outside(model: nn.Module) -> None:
    """Gradients that FSDP2 accumulates unreduced are whole, on every rank, and in no ``.grad``: they cannot be saved."""
    for name, accumulated in _outside(model):
        if accumulated is not None:
            reason = "FSDP2 holds a gradient that it has not reduced yet (set_requires_gradient_sync(False))"
            hint = (
                "save after an optimizer step: make save_every a multiple of the accumulation; "
                "or reduce in every backward"
            )
            raise TreeInvalid(name=f"{ROOT}/{name}", reason=reason, hint=hint)


def _outside(model: nn.Module) -> Iterator[tuple[str, Any]]:
    for module in model.modules():
        if not hasattr(module, "_get_fsdp_state"):
            continue
        state = module._get_fsdp_state()  # type: ignore[operator]
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        for group in groups:
            if group is None:
                continue
            yield type(module).__name__, getattr(group, "_partial_reduce_output", None)
            for parameter in group.fsdp_params:
                yield str(parameter._param_fqn), getattr(parameter, "unsharded_accumulated_grad", None)
