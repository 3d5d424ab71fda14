"""How far optimizers have come: steps that they have taken, told by a hook that is set with the first question, and their gradients."""

from collections.abc import Sequence
from itertools import islice
from weakref import WeakKeyDictionary, ref

from torch import Tensor
from torch.optim import Optimizer

#: Parameters that are looked at, evenly spread: a backward pass writes to all of them.
_LOOKED_AT = 64
_STEPS: "WeakKeyDictionary[Optimizer, list[int]]" = WeakKeyDictionary()


class GradientSign:
    """Which gradient it was, and how often it was written to. Its number alone would not tell: the next one may have the same memory."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, gradient: Tensor) -> None:
        self._gradient, self._version = ref(gradient), gradient._version

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GradientSign):
            return NotImplemented
        gradient = self._gradient()
        return gradient is not None and gradient is other._gradient() and self._version == other._version


def progress_of(optimizers: Sequence[Optimizer]) -> tuple[int, tuple[GradientSign | None, ...]]:
    """Steps of all of them since they were first asked about; and a sign for each gradient, another one when it was written to."""
    parameters = [
        parameter
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    looked_at = islice(parameters, 0, None, 1 + len(parameters) // _LOOKED_AT)
    signs = tuple(
        None if (gradient := parameter.grad) is None else GradientSign(gradient) for parameter in looked_at
    )
    return sum(_count(optimizer)[0] for optimizer in optimizers), signs


def _count(optimizer: Optimizer) -> list[int]:
    counter = _STEPS.get(optimizer)
    if counter is None:
        count = counter = _STEPS[optimizer] = [0]

        def step_taken(*_: object) -> None:
            count[0] += 1

        optimizer.register_step_post_hook(step_taken)
    return counter
