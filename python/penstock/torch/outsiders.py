"""Optimizers that train a state's model and are no part of the state: one that was never given, or that took the place of one that was. And
schedulers that set the learning rate of an optimizer of the state, and are no part of it.

A state keeps the optimizers that it was given. A program that makes another one afterwards trains with that one, and saves the old one with the
moments that it had: nothing fails, and a resumed run is another run. So every step of every optimizer is noted, and whoever trains the
model without being part of its state is named.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook

_MOMENTS = count()
#: When each optimizer stepped last.
_STEPPED: "WeakKeyDictionary[Optimizer, int]" = WeakKeyDictionary()


def _after_step(optimizer: Optimizer, *_: Any) -> None:
    _STEPPED[optimizer] = next(_MOMENTS)


register_optimizer_step_post_hook(_after_step)


class Outsiders:
    """Of one state, from when it is made: what trained its model before is over."""

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self._model, self._optimizers = model, optimizers
        self._since = next(_MOMENTS)

    def named(self, extra: Iterable[Any]) -> tuple[str, ...]:
        """In words: those that have stepped since. What ``extra`` holds as a whole is part of the state."""
        inside = [*self._optimizers, *(optimizer for optimizer in extra if isinstance(optimizer, Optimizer))]
        # One that only hands another one's state on is that one under another name.
        known = {id(optimizer.state) for optimizer in inside}
        stepped = [
            optimizer
            for optimizer, moment in list(_STEPPED.items())
            if moment > self._since
            and id(optimizer.state) not in known
            and not _only_hands_on(optimizer, known)
        ]
        return tuple(text for optimizer in stepped if (text := self._said(optimizer)) is not None)

    def _said(self, optimizer: Optimizer) -> str | None:
        trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        names = [name for name, parameter in self._model.named_parameters() if id(parameter) in trained]
        # Without moments nothing of it is lost, unless one is saved that it has replaced.
        if not names or not (optimizer.state or self._optimizers):
            return None
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        held = ", ".join(type(member).__name__ for member in self._optimizers) or "no optimizer"
        return (
            f"{type(optimizer).__name__} trains {names[0]}{others} and is not part of the state, which has {held}: "
            "make the state from the optimizers that train, and make it again when one is replaced; "
            'skip=("optimizer",) leaves them out'
        )


def _only_hands_on(optimizer: Optimizer, known: Collection[int]) -> bool:
    """Whether it keeps nothing itself and holds one that is part of the state, as ZeroRedundancyOptimizer does."""
    inner = (member for member in vars(optimizer).values() if isinstance(member, Optimizer))
    return not optimizer.state and any(id(member.state) in known for member in inner)


def unscheduled(optimizers: Sequence[Optimizer], extra: Iterable[Any]) -> tuple[str, ...]:
    """In words: optimizers whose learning rate a scheduler sets that the state does not have. It begins anew in a resumed program."""
    known = {id(optimizer.state) for value in extra for optimizer in _driven_by(value)}
    return tuple(
        f"a scheduler sets the learning rate of {type(optimizer).__name__} and is not part of the state, so a resumed program begins it "
        "anew: give it, state(…, scheduler=scheduler)"
        for optimizer in optimizers
        # The mark that schedulers of PyTorch leave on the optimizer that they are made for.
        if hasattr(optimizer.step, "_wrapped_by_lr_sched") and id(optimizer.state) not in known
    )


def _driven_by(value: Any) -> list[Optimizer]:
    """The optimizers of a scheduler, of several inside of one, or of those that an object of the program or of Accelerate holds."""
    if isinstance(value, Optimizer | nn.Module) or not hasattr(value, "__dict__"):
        return []
    inside = [value, *(member for held in vars(value).values() for member in _listed(held))]
    schedulers = [member for member in inside if isinstance(member, LRScheduler)]
    return [scheduler.optimizer for scheduler in schedulers if isinstance(scheduler.optimizer, Optimizer)]


def _listed(held: Any) -> Sequence[Any]:
    return held if isinstance(held, list | tuple) else [held]
