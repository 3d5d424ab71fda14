"""What a program carries from one step to the next by itself, and no state has: the hidden state of a recurrent net, a replay buffer, a
teacher, an iterator, a generator, a count.

A resumed program begins with those of a fresh one, and nothing in a checkpoint tells. So the variables of the functions that run, what their objects and
closures hold, the globals that they use, and what hooks of the model keep are looked at before training and again when a state is saved. What stood there before and
stands otherwise now is carried. What a step makes for itself was not there before, so it is not named; nor is what the state has.
"""

import inspect
import io
import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import partial
from types import FunctionType, GeneratorType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from penstock.torch.tree import library_objects, program
from penstock.torch.tree.contents import (
    CONTAINERS,
    GENERATORS,
    MEMBERS_MAX,
    attributes_of,
    is_plain_object,
    standing_of,
)
from penstock.torch.tree.layout import local_of

_ADVICE = (
    "put it into extra={…} and read it from there in every step, or make it anew from the number of the step"
)
#: Values that are looked at: more would hold saves up.
_LOOKED_AT_MAX = 5000
#: From a variable to what is looked at.
_DEPTH_MAX = 6
_NUMBERS = (bool, int, float, complex, str, np.number, np.bool_, Decimal, Fraction)
_KEPT_IN_CLASSES = (*_NUMBERS, *CONTAINERS, *GENERATORS, torch.Tensor, np.ndarray)
#: Classes of the standard library that programs keep their own things in.
_NAMESPACES = (SimpleNamespace, Namespace)
_PASSED_OVER = (ModuleType, Optimizer, LRScheduler, io.IOBase, np.dtype, torch.dtype, torch.device)
_CLOCKS: tuple[Callable[[], float], ...] = (
    time.time,
    time.monotonic,
    time.perf_counter,
    time.process_time,
    time.time_ns,
    time.monotonic_ns,
    time.perf_counter_ns,
)
#: Things that modules and parameters call, by the attribute that has them.
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_HOOKS_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@dataclass(frozen=True, slots=True)
class Carried:
    """What is carried, by name."""

    #: Tensors, modules, generators, iterators: training computes with them.
    surely: tuple[str, ...] = ()
    #: Numbers and texts, and containers of them, which may be no more than a record of what has happened.
    perhaps: tuple[str, ...] = ()

    def words(self, *, surely: bool = False) -> tuple[str, ...]:
        """For ``unpinned``; for a warning only those that training surely computes with."""
        names = self.surely if surely else (*self.surely, *self.perhaps)
        return tuple(
            f"{name} changes in training, is a variable of the program, and is in no state: {_ADVICE}"
            for name in names
        )


class Variables:
    """Of the program that trains a state. ``parts`` are the objects that the state has, and ``tensors`` its tensors."""

    def __init__(
        self,
        model: nn.Module,
        parts: Callable[[], Iterable[Any]],
        tensors: Callable[[], Iterable[torch.Tensor]],
    ) -> None:
        self._model, self._parts, self._tensors = model, parts, tensors
        self._before: _Look | None = None
        self._clocks: list[float] = []
        self._saves = 0
        #: Found at an earlier look.
        self._surely: dict[str, None] = {}
        self._perhaps: dict[str, None] = {}

    def begin(self) -> None:
        """Training is about to begin, or begins again."""
        self._clocks = [clock() for clock in _CLOCKS]
        self._before = self._look()
        self._before.let_go()
        self._surely, self._perhaps = {}, {}

    def carried(self) -> Carried:
        """What has changed since."""
        look, begun = self._look(), self._before
        for (root, path), now in look.seen.items() if begun is not None else ():
            assert begun is not None
            before = begun.seen.get((root, path))
            if before is None:
                # A new variable is a step's own; what an object or a dict of the program gets later is not.
                if now.standing is None or (root, path.rpartition(".")[0]) not in begun.owners:
                    continue
            elif before.standing == now.standing or self._is_time(now.value):
                continue
            is_sure = now.is_sure or (before is not None and before.is_sure)
            (self._surely if is_sure else self._perhaps)[path] = None
        perhaps = [name for name in self._perhaps if name not in self._surely]
        return Carried(tuple(self._surely), tuple(perhaps))

    def on_save(self) -> Carried:
        """What has changed, at the first save and then at every second, fourth, eighth: what is carried changes early, and saves hold training up."""
        self._saves += 1
        is_due = self._saves & (self._saves - 1) == 0
        return self.carried() if is_due else Carried()

    def _is_time(self, value: Any) -> bool:
        """Whether a number was read from a clock meanwhile."""
        return type(value) in (int, float) and any(
            before <= value <= clock() for clock, before in zip(_CLOCKS, self._clocks, strict=True)
        )

    def _look(self) -> "_Look":
        modules = list(self._model.modules())
        look = _Look({id(part) for part in (self, *self._parts(), *modules)}, self._tensors)
        for at, frame in program.frames():
            for name, value in program.variables_of(frame).items():
                if not name.startswith("."):  # an iterator that a comprehension has made for itself
                    look.at(at, name, value)
        kinds = {type(module) for module in modules}
        for kind in sorted(filter(program.is_own_class, kinds), key=lambda kind: kind.__qualname__):
            look.methods(kind)
        for module in modules:
            for name in _HOOKS:
                if hooks := getattr(module, name, None):
                    look.inside(type(module).__name__, hooks)
            for parameter in module._parameters.values():
                for name in _HOOKS_OF_TENSORS:
                    if hooks := getattr(parameter, name, None):
                        look.inside("hook", hooks)
        return look


@dataclass(frozen=True, slots=True)
class _Seen:
    standing: Any
    is_sure: bool
    #: A number; of other things nothing is kept.
    value: Any = None


@dataclass
class _Look:
    """One look at all variables."""

    #: Identities of what the state has, and of what was looked at already.
    known: set[int]
    tensors: Callable[[], Iterable[torch.Tensor]]
    seen: dict[tuple[Any, str], _Seen] = field(default_factory=dict)
    #: Objects whose attributes were looked at.
    owners: set[tuple[Any, str]] = field(default_factory=set)
    _memory: set[int] | None = None
    _count: int = 0
    _alive: list[Any] = field(default_factory=list)
    _functions: set[int] = field(default_factory=set)

    def at(self, root: Any, path: str, value: Any, depth: int = 0) -> None:
        """Look at a value, and at what it holds."""
        self._count += 1
        if self._count > _LOOKED_AT_MAX or depth > _DEPTH_MAX:
            return
        if value is None or isinstance(value, _NUMBERS):
            kept = value if isinstance(value, int | float) else None
            self.seen[root, path] = _Seen(standing_of(value), False, kept)
            return
        if id(value) in self.known or isinstance(value, _PASSED_OVER) or _is_of_penstock(value):
            return
        try:
            self._thing(root, path, value, depth)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
            # Whatever an object answers that does not want to be looked at, training goes on.
            self.seen.pop((root, path), None)

    def let_go(self) -> None:
        """Keep what was found out, and nothing of the program."""
        self.known, self._memory, self._alive, self.tensors = set(), None, [], tuple

    def _thing(self, root: Any, path: str, value: Any, depth: int) -> None:
        if isinstance(value, type):
            if program.is_own_class(value):
                self.methods(value, depth + 1)
            return
        is_of_state = isinstance(value, torch.Tensor) and self._is_of_state(value)
        self._know(value)
        if isinstance(value, torch.Tensor):
            if not is_of_state:
                self.seen[root, path] = _Seen(standing_of(value), True)
        elif isinstance(value, (*GENERATORS, np.ndarray)):
            self.seen[root, path] = _Seen(standing_of(value), True)
        elif isinstance(value, CONTAINERS):
            self._container(root, path, value, depth)
        else:
            self._object(root, path, value, depth + 1)

    def _know(self, value: Any) -> None:
        """Look at it once. It is kept for the time of the look, so that no other object gets its identity."""
        self.known.add(id(value))
        self._alive.append(value)

    def inside(self, path: str, hooks: Mapping[Any, Any]) -> None:
        """Look at functions that PyTorch calls."""
        for hook in list(hooks.values()):
            self._callable((path, "hook"), path, hook, 1)

    def methods(self, kind: type, depth: int = 1) -> None:
        """Look at what is kept in a class, and in globals that its methods use."""
        if id(kind) in self.known:
            return
        self._know(kind)
        for key, member in list(vars(kind).items()):
            if isinstance(member, FunctionType):
                self._function(kind, kind.__name__, member, depth)
            elif not key.startswith("__") and isinstance(member, _KEPT_IN_CLASSES):
                self.at(kind, f"{kind.__name__}.{key}", member, depth)

    def _container(self, root: Any, path: str, value: Any, depth: int) -> None:
        """As one thing; objects in it one by one."""
        members = list(_members(value))
        plain = [member for _, member in members if self._counts(member)]
        is_sure = any(
            isinstance(member, (torch.Tensor, np.ndarray, *GENERATORS)) for member in _leaves(plain)
        )
        size = len(value)
        self.seen[root, path] = _Seen([size, standing_of(plain)], is_sure)
        for key, member in members:
            if not isinstance(member, (*_NUMBERS, torch.Tensor, np.ndarray, *CONTAINERS)):
                self.at(root, f"{path}[{key!r}]", member, depth + 1)

    def _counts(self, member: Any) -> bool:
        """Whether a member of a container may be state that the state of the run has not."""
        if isinstance(member, torch.Tensor):
            return not self._is_of_state(member)
        if id(member) in self.known and not isinstance(member, _NUMBERS):
            return False
        if isinstance(member, CONTAINERS):
            return all(self._counts(inner) for inner in _leaves([member]))
        return member is None or isinstance(member, (*_NUMBERS, np.ndarray, *GENERATORS))

    def _object(self, root: Any, path: str, value: Any, depth: int) -> None:
        if isinstance(value, nn.Module):
            for name, tensor in (*value.named_parameters(), *value.named_buffers()):
                self.at(root, f"{path}.{name}", tensor, depth)
            for name, member in library_objects.of_module(value).items():
                self.at(root, f"{path}.{name}", member, depth)
            for module in value.modules():
                self._know(module)
        elif (inside := library_objects.inside_of(value)) is not None:
            for name, member in inside.items():
                self.at(root, f"{path}.{name}", member, depth)
            if isinstance(cached := getattr(value, "__wrapped__", None), FunctionType):
                self._function(root, path, cached, depth)
        elif callable(value) and not program.is_own_class(type(value)):
            self._callable(root, path, value, depth)
        elif isinstance(value, GeneratorType):
            # One that has begun and has not ended is read from; how far it is nobody can tell.
            has_begun = value.gi_frame is not None and inspect.getgeneratorstate(value) != inspect.GEN_CREATED
            self.seen[root, path] = _Seen(object() if has_begun else "not begun", True)
        elif isinstance(value, _NAMESPACES):
            self._attributes(root, path, value, depth)
        elif program.is_own_class(type(value)):
            self._attributes(root, path, value, depth)
            for kind in type(value).__mro__:
                if program.is_own_class(kind):
                    self.methods(kind, depth)
        elif isinstance(value, Iterator):
            # How far it is only some iterators say; one that was there before the loop is read in it.
            count = getattr(value, "_num_yielded", None)
            self.seen[root, path] = _Seen(object() if count is None else count, True)
        elif hasattr(type(value), "state_dict") and hasattr(type(value), "load_state_dict"):
            self._attributes(root, path, value, depth)

    def _attributes(self, root: Any, path: str, value: Any, depth: int) -> None:
        if not (is_plain_object(value) or hasattr(value, "__dict__")):
            return
        self.owners.add((root, path))
        for key, member in list(attributes_of(value).items()):
            self.at(root, f"{path}.{key}", member, depth)

    def _callable(self, root: Any, path: str, value: Any, depth: int) -> None:
        if isinstance(value, partial):
            self._callable(root, path, value.func, depth)
            self.at(root, f"{path}.args", value.args, depth)
            self.at(root, f"{path}.keywords", value.keywords, depth)
        elif isinstance(value, MethodType):
            self.at(root, path, value.__self__, depth)
            self._callable(root, path, value.__func__, depth)
        elif isinstance(value, FunctionType):
            self._function(root, path, value, depth)
        elif hasattr(value, "__dict__") and program.is_own_class(type(value)):
            self.at(root, path, value, depth)

    def _function(self, root: Any, path: str, function: FunctionType, depth: int) -> None:
        """What a function of the program closes over, its defaults, and the globals that it uses."""
        if id(function) in self._functions or not program.is_own_code(function.__code__):
            return
        self._functions.add(id(function))
        self._alive.append(function)
        name = function.__name__
        self.owners.add((root, name))
        for key, value in list(vars(function).items()):
            if key != "__wrapped__":
                self.at(root, f"{name}.{key}", value, depth)
        if "environ" in function.__code__.co_names:
            self.at("global", "os.environ", dict(os.environ), depth)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                self.at(root, f"{name}.{variable}", cell.cell_contents, depth)
            except ValueError:
                continue  # not assigned yet
        for at, default in enumerate(function.__defaults__ or ()):
            self.at(root, f"{name}.defaults[{at}]", default, depth)
        for variable, value in program.globals_of(function.__code__, function.__globals__).items():
            self.at("global", variable, value, depth)

    def _is_of_state(self, tensor: torch.Tensor) -> bool:
        """Whether it is a tensor of the state, or a view of one."""
        if id(tensor) in self.known:
            return True
        if self._memory is None:
            self._memory = {place for part in self.tensors() if (place := _place_of(part))}
        return _place_of(tensor) in self._memory


def _place_of(tensor: torch.Tensor) -> int:
    """Where its storage is; 0 for one that has none of its own."""
    local = local_of(tensor)
    if local.layout is not torch.strided or hasattr(local, "__tensor_flatten__") or local.is_meta:
        return 0
    return local.untyped_storage().data_ptr()


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    if len(value) > MEMBERS_MAX:
        return iter(())
    return iter(list(value.items())) if isinstance(value, dict) else enumerate(list(value))


def _leaves(members: Iterable[Any], depth: int = 0) -> Iterator[Any]:
    for member in members:
        if isinstance(member, CONTAINERS) and depth < _DEPTH_MAX:
            yield from _leaves([item for _, item in _members(member)], depth + 1)
        else:
            yield member


def _is_of_penstock(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "penstock"
