"""The state of optimizers by the names of parameters, so that it fits any grouping and any layout.

What an optimizer keeps of a parameter is ``optimizer/<parameter>/<key>``; where several optimizers have a parameter (GANs, phases of
training, an optimizer around another), the second of them keeps ``optimizer.1/<parameter>/<key>``, and so the others. Groups are one value that lists
their parameters by name. What an optimizer's own ``state_dict`` has beyond that is ``optimizer.<number>/state_dict``. An optimizer that has not stepped yet has no state: when it is loaded, room is made from what the checkpoint has, in the form that an
optimizer would make (like its parameter), without running a step. So frozen parameters, parameters that never had a gradient, and
optimizers that would do more than nothing for a gradient of zero all come back as they were.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from penstock.errors import TreeInvalid
from penstock.torch.device.mover import SAFETENSORS_NAMES, TORCH_TYPES
from penstock.torch.tree.documents import Document, Tensors, decode, encode, escaped, tensor_names
from penstock.torch.tree.tensors import check

GROUPS = "optimizer/param_groups"
#: Types that tensors have in the optimizer, where they are stored in another.
DTYPES = "optimizer/dtypes"
#: Which optimizer a group belongs to, where parameters belong to several.
NUMBER = "optimizer_number"
#: The class of the optimizer that a group belongs to.
CLASS = "optimizer_class"
#: Settings of a group that are tensors of one element, which are stored as numbers: their type, their shape, and whether they are on a device.
TENSORS = "optimizer_tensors"
#: What is said about a group and is none of its settings.
_ABOUT = ("params", NUMBER, CLASS, TENSORS)
#: Settings that schedulers put into groups.
_OF_SCHEDULERS = {"base_momentum", "initial_lr", "max_lr", "max_momentum", "min_lr", "swa_lr"}
#: So many around each other.
_WRAPPERS_MAX = 8
#: The types and shapes of tensors in a checkpoint, by name.
Kinds = Mapping[str, tuple[str, tuple[int, ...]]]


class Kept(NamedTuple):
    """What an optimizer knows of one parameter."""

    name: str
    parameter: torch.Tensor
    group: dict[str, Any]
    optimizer: Optimizer
    #: What the names of its state begin with.
    prefix: str

    @property
    def state(self) -> dict[str, Any]:
        """Tensors and numbers by key; nothing before the first step."""
        state: dict[str, Any] = self.optimizer.state.get(self.parameter, {})
        return state

    def name_of(self, key: Any) -> str:
        """The name of a part of the state."""
        if not isinstance(key, str):
            raise TreeInvalid(
                name=self.prefix, reason=f"keys must be text, got {key!r}", hint="use texts as keys"
            )
        return self.prefix + escaped(key)


class Optimizing:
    """Some optimizers, whose parameters have names."""

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        names: Mapping[int, str],
        dtype: torch.dtype | Mapping[str, torch.dtype] | None,
    ) -> None:
        self._optimizers = optimizers
        self._names = names
        self._dtype = dtype

    def kept(self) -> Iterator[Kept]:
        """What is kept, parameter by parameter."""
        shared = self._shared
        for number, optimizer in enumerate(self._optimizers):
            known = set()
            for at, group in enumerate(optimizer.param_groups):
                for parameter in group["params"]:
                    known.add(id(parameter))
                    name = self._name(at, parameter)
                    root = f"optimizer.{number}" if id(parameter) in shared else "optimizer"
                    yield Kept(name, parameter, group, optimizer, f"{root}/{escaped(name)}/")
            for key in optimizer.state:
                if id(key) not in known:
                    hint = (
                        "save the optimizer as a whole: extra={'optimizer': optimizer}, skip=('optimizer',)"
                    )
                    raise TreeInvalid(
                        name="optimizer", reason=f"state of {_said(key)}, no parameter", hint=hint
                    )

    def documents(self) -> dict[str, Document]:
        """What optimizers have in a ``state_dict`` of their own, beyond parameters and groups."""
        documents = {}
        for number, optimizer in enumerate(self._optimizers):
            if _has_own_state_dict(optimizer):
                read, write = partial(_further_state, optimizer), partial(_load_further, optimizer)
                documents[f"optimizer.{number}/state_dict"] = Document(read, write)
        return documents

    @cached_property
    def _shared(self) -> set[int]:
        """Parameters that several optimizers have."""
        if len(self._optimizers) < 2:
            return set()
        of = Counter(
            member
            for optimizer in self._optimizers
            for member in {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        )
        return {parameter for parameter, count in of.items() if count > 1}

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor with its name."""
        for kept in self.kept():
            for key, value in kept.state.items():
                if isinstance(value, torch.Tensor):
                    yield kept.name_of(key), value
                else:
                    inside = Tensors()
                    encode(kept.name_of(key), value, inside.add)
                    yield from inside.items()

    def values(self) -> dict[str, Any]:
        """Everything else by name."""
        values: dict[str, Any] = {GROUPS: self._groups()}
        cast: dict[str, str] = {}
        for kept in () if self._dtype is None and self._has_tensors_alone() else self.kept():
            for key, value in kept.state.items():
                if isinstance(value, torch.Tensor):
                    if self._dtype is not None and self.stored_as(kept.name_of(key), value) is not None:
                        cast[kept.name_of(key)] = SAFETENSORS_NAMES[value.dtype]
                else:
                    values[kept.name_of(key)] = encode(kept.name_of(key), value, lambda *_: None)
        return {**values, DTYPES: cast}

    def _has_tensors_alone(self) -> bool:
        """Whether there is no state but tensors, as of most optimizers: then there is nothing to name."""
        states = (kept.values() for optimizer in self._optimizers for kept in optimizer.state.values())
        return all(isinstance(value, torch.Tensor) for values in states for value in values)

    def stored_as(self, name: str, tensor: torch.Tensor) -> str | None:
        """The type that a tensor is stored in, if it is another than its own: that of floating-point tensors can be chosen."""
        if self._dtype is None:
            return None
        wanted = self._dtype.get(name.rpartition("/")[2]) if isinstance(self._dtype, Mapping) else self._dtype
        if wanted is None or not tensor.is_floating_point() or not tensor.ndim or tensor.dtype == wanted:
            return None
        return SAFETENSORS_NAMES[wanted]

    def make_room(self, tensors: Kinds, values: Mapping[str, Any]) -> None:
        """Bring the state into the form of a checkpoint, whose contents are then filled in."""
        self._refuse_other_kind(values.get(GROUPS, ()))
        keys: dict[str, dict[str, None]] = {}
        for name in (*tensors, *values):
            root, parameter, key = (*name.split("/", 3), "", "")[:3]
            if key:
                keys.setdefault(f"{root}/{parameter}/", {})[key] = None
        groups = values.get(GROUPS, ())
        known = {(group.get(NUMBER), name) for group in groups for name in group["params"]}
        native = values.get(DTYPES, {})
        for kept in self.kept():
            wanted = keys.get(kept.prefix, {})
            if wanted:
                check(f"model/{escaped(kept.name)}", kept.parameter)
            for key in wanted:
                self._make(kept, key, tensors, values, native)
            if (self._number_of(kept.optimizer), kept.name) in known:
                _forget(kept, wanted)

    def _refuse_other_kind(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """State of another kind of optimizer fits by its names, and would mean something else. Its class tells; where none was saved, the settings
        of groups: each has some that the other does not know. One that has learned a setting since, as those of a newer PyTorch have, is no other kind.
        """
        of = {(group.get(NUMBER), name): group for group in saved for name in group["params"]}
        for optimizer in self._optimizers:
            number = self._number_of(optimizer)
            for at, group in enumerate(optimizer.param_groups):
                for name in map(self._named(at), group["params"]):
                    known = of.get((number, name), group)
                    theirs = known.keys() - set(_ABOUT)
                    missing = (optimizer.defaults.keys() & group.keys()) - theirs
                    foreign = theirs - group.keys() - optimizer.defaults.keys() - _OF_SCHEDULERS
                    here, there = type(innermost(optimizer)).__name__, known.get(CLASS)
                    if there not in (None, here):
                        said = f"{there} saved it, and this is {here}"
                    elif missing and foreign:
                        said = (
                            f"that had {', '.join(sorted(foreign))}, {here} has {', '.join(sorted(missing))}"
                        )
                    else:
                        continue
                    hint = (
                        "make the optimizer that was saved, or begin with a new one: only='model'; "
                        f"state(…, skip=({GROUPS!r},)) loads its moments all the same and keeps the settings given now"
                    )
                    reason = f"it was saved by another kind of optimizer: {said}"
                    raise TreeInvalid(name=GROUPS, reason=reason, hint=hint)

    def load_groups(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """Take hyperparameters back, group by group, by the parameters in them."""
        of = {(group.get(NUMBER), name): group for group in saved for name in group["params"]}
        for optimizer in self._optimizers:
            number = self._number_of(optimizer)
            for at, group in enumerate(optimizer.param_groups):
                names = [(number, name) for name in map(self._named(at), group["params"])]
                theirs = [of[name] for name in names if name in of]
                for key in dict.fromkeys(key for other in theirs for key in other if key not in _ABOUT):
                    saved_values = [other[key] for other in theirs if key in other]
                    if any(value != saved_values[0] for value in saved_values):
                        hint = f"group parameters as they were, or skip=({GROUPS!r},) to keep the values given now"
                        reason = f"group {at} has parameters that were saved with different {key}"
                        raise TreeInvalid(name=GROUPS, reason=reason, hint=hint)
                    kind = next(
                        (other[TENSORS][key] for other in theirs if key in other.get(TENSORS, ())), None
                    )
                    _set(group, key, decode(saved_values[0], _no_tensor), kind)

    def load_values(self, values: Mapping[str, Any]) -> None:
        """Take back what is not a tensor."""
        live = dict(self.tensors())
        for kept in self.kept():
            for key in list(kept.state):
                if (document := values.get(kept.name_of(key))) is not None:
                    kept.state[key] = decode(document, live.__getitem__)

    def _groups(self) -> list[dict[str, Any]]:
        groups = []
        for optimizer in self._optimizers:
            for at, group in enumerate(optimizer.param_groups):
                settings = {
                    key: encode(f"{GROUPS}/{at}/{key}", _number(value), _no_tensor_in_group)
                    for key, value in group.items()
                    if key not in ("params", "param_names")
                }
                number = self._number_of(optimizer)
                owner = {CLASS: type(innermost(optimizer)).__name__} | (
                    {} if number is None else {NUMBER: number}
                )
                tensors = {key: _kind(value) for key, value in group.items() if _is_number(value)}
                about: dict[str, Any] = {**owner, TENSORS: tensors} if tensors else {**owner}
                groups.append({"params": list(map(self._named(at), group["params"])), **about, **settings})
        return groups

    def _number_of(self, optimizer: Optimizer) -> int | None:
        """Which optimizer it is, where that has to be said: parameters of several optimizers do not tell."""
        if not self._shared:
            return None
        return next(number for number, other in enumerate(self._optimizers) if other is optimizer)

    def _make(
        self, kept: Kept, key: str, tensors: Kinds, values: Mapping[str, Any], native: Mapping[str, str]
    ) -> None:
        """Room for one key of one parameter, unless it is there."""
        name = kept.prefix + key
        plain_key = key.replace("~1", "/").replace("~0", "~")
        state = kept.optimizer.state[kept.parameter]
        if name in tensors:
            dtype, shape = tensors[name]
            live = state.get(plain_key)
            if not isinstance(live, torch.Tensor) or tuple(live.shape) != tuple(shape):
                made_as = native.get(name, dtype)
                if shape and made_as == tensors.get(f"model/{escaped(kept.name)}", ("", ()))[0]:
                    # It was made in its parameter's type: in this one's the next step does not mix types.
                    made_as = SAFETENSORS_NAMES[kept.parameter.dtype]
                state[plain_key] = _like_parameter(kept, plain_key, made_as, shape)
            return
        if name not in values:
            return
        live_parts: dict[str, torch.Tensor] = {}
        encode(name, state.get(plain_key), live_parts.__setitem__)
        for part in tensor_names(values[name]):
            dtype, shape = tensors[part]
            if part not in live_parts or tuple(live_parts[part].shape) != tuple(shape):
                live_parts[part] = _like_parameter(kept, plain_key, dtype, shape)
        state[plain_key] = decode(values[name], live_parts.__getitem__)

    def _named(self, at: int) -> Any:
        return lambda parameter: self._name(at, parameter)

    def _name(self, at: int, parameter: torch.Tensor) -> str:
        if (name := self._names.get(id(parameter))) is None:
            reason = (
                f"group {at} has a parameter of shape {tuple(parameter.shape)} that the model does not have"
            )
            hint = "give state() the module that holds it; make the optimizer after wrapping the model"
            raise TreeInvalid(name="optimizer", reason=reason, hint=hint)
        return name


def with_inner(optimizers: Sequence[Optimizer]) -> tuple[Optimizer, ...]:
    """Optimizers, and those that they hold inside (SAM, Lookahead), whose moments no ``state_dict`` of the outer one has."""
    by_state: dict[int, Optimizer] = {}
    waiting = list(optimizers)
    while waiting:
        optimizer = waiting.pop(0)
        if not hasattr(optimizer, "_optimizer_step_post_hooks"):
            # Optimizer by name alone, as Accelerate's: it hands everything on, and hooks find no place in it.
            optimizer = innermost(optimizer)
        # One that only hands its inner one's state on is that one under another name.
        if "ZeroRedundancyOptimizer" in (kind.__name__ for kind in type(optimizer).__mro__):
            reason = "ZeroRedundancyOptimizer has moments of other parameters on every rank, and hands them out in one piece alone"
            hint = "give the optimizer that it holds on this rank: state(model, optimizer.optim); or use FSDP2 (fully_shard)"
            raise TreeInvalid(name="optimizer", reason=reason, hint=hint)
        if id(optimizer.state) not in by_state:
            by_state[id(optimizer.state)] = optimizer
            inner = [member for member in vars(optimizer).values() if isinstance(member, Optimizer)]
            waiting.extend(member for member in inner if member is not optimizer)
    return tuple(by_state.values())


def innermost(optimizer: Optimizer) -> Optimizer:
    """The one that a wrapper, or several around each other, hands the state of."""
    for _ in range(_WRAPPERS_MAX):
        inside = [member for member in vars(optimizer).values() if isinstance(member, Optimizer)]
        inner = next(
            (member for member in inside if member is not optimizer and member.state is optimizer.state), None
        )
        if inner is None:
            break
        optimizer = inner
    return optimizer


def _has_own_state_dict(optimizer: Optimizer) -> bool:
    hooks = getattr(optimizer, "_optimizer_state_dict_post_hooks", None)
    return type(optimizer).state_dict is not Optimizer.state_dict or bool(hooks)


def _further_state(optimizer: Optimizer) -> dict[str, Any]:
    return {
        key: value for key, value in optimizer.state_dict().items() if key not in ("state", "param_groups")
    }


def _load_further(optimizer: Optimizer, loaded: dict[str, Any]) -> None:
    """Give an optimizer what only it understands; the rest it has already, with bits that ``load_state_dict`` would round to the parameter's type."""
    if not loaded:
        return
    exact = {parameter: dict(state) for parameter, state in optimizer.state.items()}
    optimizer.load_state_dict({**optimizer.state_dict(), **loaded})
    for parameter, state in exact.items():
        optimizer.state[parameter] = state


def _like_parameter(kept: Kept, key: str, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor as an optimizer makes it: like its parameter; counts of steps are on the CPU unless kernels read them."""
    parameter, wanted = kept.parameter.detach(), TORCH_TYPES[dtype]
    if shape:
        same = tuple(parameter.shape) == tuple(shape)
        return torch.zeros_like(parameter, dtype=wanted) if same else parameter.new_zeros(shape, dtype=wanted)
    on_device = key != "step" or kept.group.get("capturable") or kept.group.get("fused")
    return torch.zeros((), dtype=wanted, device=parameter.device if on_device else "cpu")


def _forget(kept: Kept, wanted: Mapping[str, None]) -> None:
    """The checkpoint knows the parameter and has no such state of it: it was saved before that came to be."""
    for key in [key for key in kept.state if escaped(key) not in wanted]:
        del kept.state[key]
    if not kept.state:
        kept.optimizer.state.pop(kept.parameter, None)


def _set(group: dict[str, Any], key: str, value: Any, kind: Sequence[Any] | None) -> None:
    """A setting that was a tensor is one again if the optimizer makes it later, in its first step; where it has a number now, it keeps numbers."""
    if isinstance(group.get(key), torch.Tensor):
        group[key].fill_(value)
    elif kind is not None and key not in group:
        dtype, shape, on_device = kind
        device = group["params"][0].device if on_device and group["params"] else "cpu"
        group[key] = torch.full(tuple(shape), value, dtype=TORCH_TYPES[dtype], device=device)
    else:
        group[key] = value


def _kind(tensor: torch.Tensor) -> list[Any]:
    return [SAFETENSORS_NAMES[tensor.dtype], list(tensor.shape), tensor.device.type != "cpu"]


def _is_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1 and value.dtype in SAFETENSORS_NAMES


def _number(value: Any) -> Any:
    """A learning rate that is a tensor is stored as a number."""
    return value.item() if _is_number(value) else value


def _no_tensor_in_group(name: str, tensor: torch.Tensor) -> None:
    raise TreeInvalid(name=name, reason=f"a tensor of shape {tuple(tensor.shape)} in a group of parameters")


def _no_tensor(name: str) -> torch.Tensor:
    raise TreeInvalid(name=name, reason="a tensor in a group of parameters")


def _said(key: Any) -> str:
    return f"a tensor of shape {tuple(key.shape)}" if isinstance(key, torch.Tensor) else repr(key)
