"""How a model trains, as far as no state dict says it: which parameters have gradients, which modules are in evaluation mode, and
numbers of PyTorch's own modules, such as the chance of a dropout.

A program sets these in every life before it trains. What is changed on the way (layers that are unfrozen at a step, batch norms that
are frozen at another) a resumed program does not change again, so it trains otherwise. The optimizer's first step tells what a life begins with.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

_ADVICE = "set it from the number of the step, at the beginning of every step or life"
_HOME = "torch.nn.modules."


class Modes:
    """Of the model of a state, from the first step of an optimizer on, or from when it is made, where there is no optimizer."""

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self._model = model
        #: Nothing, until training has begun.
        self._before: _Look | None = None if optimizers else _Look(model)
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._begun)

    def _begun(self, *_: Any) -> None:
        if self._before is None:
            self._before = _Look(self._model)

    def changed(self) -> tuple[str, ...]:
        """What has changed since, in words."""
        if self._before is None:
            return ()
        return tuple(
            f"{_first_of(names)} {said}, which no state dict has: {_ADVICE}"
            for said, names in self._before.changed().items()
            if names
        )


class _Look:
    """How a model stood at one moment."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        parameters = [item for item in model.named_parameters() if not is_lazy(item[1])]
        self._parameters = [(name, parameter, parameter.requires_grad) for name, parameter in parameters]
        self._modules = [(name, module, self._is_odd(module)) for name, module in model.named_modules()]
        self._numbers = [
            (f"{name}.{key}", vars(module), key, value)
            for name, module, _ in self._modules
            if type(module).__module__.startswith(_HOME)
            for key, value in _numbers_of(vars(module))
        ]

    def changed(self) -> Mapping[str, list[str]]:
        """Names of what stands otherwise now, by what is to be said about it."""
        others = [name for name, parameter, before in self._parameters if parameter.requires_grad != before]
        # While all of it is evaluated, modes of its parts mean nothing.
        odd = [
            name
            for name, module, before in self._modules
            if self._model.training and self._is_odd(module) != before
        ]
        numbers = [name for name, kept, key, before in self._numbers if kept.get(key) != before]
        return {
            "was frozen or unfrozen since training began": others,
            "changed between training and evaluation mode since training began": odd,
            "has another value than when training began": numbers,
        }

    def _is_odd(self, module: nn.Module) -> bool:
        return module.training != self._model.training


def _numbers_of(attributes: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in attributes.items():
        if isinstance(value, int | float) and not key.startswith("_") and key != "training":
            yield key, value


def _first_of(names: Iterable[str]) -> str:
    first, *others = names
    return f"model/{first}" + (f" (and {len(others)} more)" if others else "")
