"""Which tensors are moments of which parameters, told by their names alone.

A tensor below something that is called like an optimizer is a moment of the parameter whose path is in its own: of ``model/head.weight``
are ``optimizer/head.weight/exp_avg`` (as ``penstock.torch.state`` names it) and ``opt_state/0/mu/head.weight`` (as optax does). Counts of
steps and the like belong to no parameter in that sense.
"""

import re
from collections.abc import Iterable

_OPTIMIZER = re.compile(r"opt(im(izer)?)?(_?states?)?s?[.]?\d*", re.IGNORECASE)
#: Keys of an optimizer's state that are no moments.
_COUNTS = {"step", "count", "lr", "learning_rate", "beta1_power", "beta2_power"}


def is_of_optimizer(name: str) -> bool:
    """Whether a tensor belongs to an optimizer."""
    return _OPTIMIZER.fullmatch(name.partition("/")[0]) is not None


def moments_of(names: Iterable[str]) -> dict[str, str]:
    """From the names of moments to the names of their parameters."""
    names = list(names)
    parameters: dict[tuple[str, ...], str] = {}
    for name in names:
        if not is_of_optimizer(name):
            parts = tuple(name.split("/"))
            parameters[parts] = name
            # A moment does not repeat what the whole model is called.
            if len(parts) > 1:
                parameters.setdefault(parts[1:], name)
    parameter_of = {}
    for name in names:
        if is_of_optimizer(name) and name.rpartition("/")[2] not in _COUNTS:
            parameter = _longest(tuple(name.split("/"))[1:], parameters)
            if parameter is not None:
                parameter_of[name] = parameter
    return parameter_of


def _longest(path: tuple[str, ...], parameters: dict[tuple[str, ...], str]) -> str | None:
    """The parameter with the longest path that is a stretch of the given one."""
    for length in range(len(path), 0, -1):
        for first in range(len(path) - length + 1):
            known = parameters.get(path[first : first + length])
            if known is not None:
                return known
    return None
