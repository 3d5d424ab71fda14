"""Sees every operator of a forward and a backward on fake tensors, and writes down what multiplies.

Backward operators are told from recomputed ones by who called them: between the autograd engine and a recomputed operator lies
a module's call or torch's own checkpointing, between the engine and a gradient lies neither. Their module is the one whose
forward made the autograd node, by its sequence number.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from penstock.observe.flops import Mask, Product, Site, Unknown
from penstock.observe.flops.model_flops import Seen
from penstock.observe.flops.product import Phase
from penstock.torch.arithmetic.attention import ATTENTION, AttentionCall, read_call
from penstock.torch.arithmetic.known_values import KnownValues, real_tensors
from penstock.torch.arithmetic.mask_pattern import recognise
from penstock.torch.arithmetic.operators import Cost, formula_of, is_free, number_type, registered

_ENGINE = torch.autograd.graph._engine_run_backward.__code__
_CHECKPOINT_FILE = checkpoint.__file__
_ITEM = torch.ops.aten._local_scalar_dense.default
_MODULE_CALL = torch.nn.Module._call_impl.__code__
#: Operators that give the same values in another type, place or shape.
_CARRIERS = frozenset(
    f"aten::{name}"
    for name in (
        "_to_copy", "alias", "clone", "contiguous", "detach", "lift_fresh", "reshape", "squeeze", "to", "unsqueeze", "view",
        "_unsafe_view", "expand",
    )
)  # fmt: skip


class Trace(TorchDispatchMode):
    """What one forward and backward multiply, in order."""

    #: Higher-order operators come here too, so none passes unseen.
    supports_higher_order_operators = True

    def __init__(self, names: Mapping[torch.nn.Module, str], masks: Mapping[str, Mask]) -> None:
        super().__init__()
        self._names = names
        self._masks = masks
        self._stack: list[str] = []
        #: Autograd node of a forward operator -> its module.
        self._modules: dict[int, str] = {}
        #: Tensors that are fields of the batch, or carry their values.
        self._fields = WeakTensorKeyDictionary()
        self._handlers: dict[Any, Callable[..., None] | None] = {}
        self.known = KnownValues()
        #: Masks that layers share, read once.
        self._bias_masks = WeakTensorKeyDictionary()
        self._bias_sources = WeakTensorKeyDictionary()
        self.in_backward = False
        self.seen: list[Seen] = []
        self.unknown: list[Unknown] = []
        self.last_operator = ""

    def know_field(self, name: str, tensor: torch.Tensor) -> None:
        """Say that a tensor is this field of the batch."""
        self._fields[tensor] = name

    @property
    def module(self) -> str:
        """The module at work: the innermost that is called, or the one that made the autograd node."""
        if self._stack:
            return self._stack[-1]
        if self.in_backward:
            node = torch._C._current_autograd_node()
            if node is not None:
                return self._modules.get(node._sequence_nr(), "")
        return ""

    @contextmanager
    def watch_modules(self) -> Iterator[None]:
        """Know which module is called."""

        def enter(module: torch.nn.Module, _: Any) -> None:
            self._stack.append(self._names.get(module, type(module).__name__))

        def leave(module: torch.nn.Module, _: Any, __: Any) -> None:
            if self._stack:
                self._stack.pop()

        handles = [
            torch.nn.modules.module.register_module_forward_pre_hook(enter),
            torch.nn.modules.module.register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator below, then write down what it cost."""
        keywords = kwargs or {}
        if func not in self._handlers:
            self._handlers[func] = self._handler_of(func)
        handler = self._handlers[func]
        if handler is None:
            return self._free(func, args, keywords)
        self.last_operator = _name_of(func)
        result = func(*args, **keywords)
        handler(func, args, keywords, result)
        return result

    def _free(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """An operator that costs nothing, but may make values that follow from shapes, or ask for one."""
        if func is _ITEM:
            value = self.known.item(args[0])
            if value is not None:
                return value
        if func.namespace != "aten" or self.in_backward:
            return func(*args, **keywords)
        self.last_operator = _name_of(func)
        if func._schema.is_mutable:
            before = args[0]._version if args and isinstance(args[0], torch.Tensor) else 0
            result = func(*args, **keywords)
            self.known.note_change(func, args, keywords, before)
            return result
        result = func(*args, **keywords)
        self.known.note(func, args, keywords, result)
        return result

    def _handler_of(self, func: Any) -> Callable[..., None] | None:
        """What to do with calls of an operator; None when they cost nothing."""
        name = _name_of(func)
        if registered(name)[0]:
            return self._by_registration
        if name in ATTENTION:
            return self._by_attention
        if formula_of(name) is not None:
            return self._by_formula
        if name in _CARRIERS:
            return self._carry
        if isinstance(func, torch._ops.OpOverload) and is_free(name):
            return None
        return self._by_nobody

    def _carry(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        if not self.in_backward:
            self.known.note(func, args, keywords, result)
        if args and isinstance(args[0], torch.Tensor) and isinstance(result, torch.Tensor):
            field = self._fields.get(args[0])
            if field is not None and args[0].numel() == result.numel():
                self._fields[result] = field

    def _by_registration(
        self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any], result: Any
    ) -> None:
        formula = registered(_name_of(func))[1]
        if formula is None:
            return
        call = _by_name(func, args, keywords)
        flops = formula(**call)
        dtype = next(value.dtype for value in call.values() if isinstance(value, torch.Tensor))
        self._add(func, Cost(1, (flops,), dtype), call)

    def _by_formula(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        formula = formula_of(_name_of(func))
        assert formula is not None
        call = _by_name(func, args, keywords)
        costs = formula(call, result)
        for cost in costs if isinstance(costs, list) else [costs]:
            self._add(func, cost, call)

    def _by_nobody(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        values = torch.utils._pytree.tree_leaves((args, keywords))
        if any(isinstance(value, torch.Tensor) for value in values):
            self._do_not_know(_name_of(func), "no formula is known: flops.register gives it one")

    def _do_not_know(self, operator: str, reason: str) -> None:
        self.unknown.append(Unknown(self.module, operator, reason))

    def _add(self, func: Any, cost: Cost, call: Mapping[str, Any]) -> None:
        name = _name_of(func)
        phase, module = self._place()
        if not all(type(size) is int for size in cost.dims):
            self._do_not_know(name, "its shape depends on data, which fake tensors do not have")
            return
        on_gpu = any(isinstance(value, torch.Tensor) and value.is_cuda for value in call.values())
        dtype, times = number_type(cost.dtype, is_convolution="conv" in name, on_gpu=on_gpu)
        self.seen.append(
            Product(module, name, phase, dtype, cost.factor * times, cost.dims, experts=cost.experts)
        )

    def _place(self) -> tuple[Phase, str]:
        """Phase and module of the operator at hand."""
        module = self.module
        phase: Phase = "forward"
        if self.in_backward:
            phase = "recompute" if _is_recomputed() else "backward"
        if phase != "backward":
            self._modules[torch.autograd._get_sequence_nr() - 1] = module
        return phase, module

    def _by_attention(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        name = _name_of(func)
        attention = read_call(name, _by_name(func, args, keywords))
        gradients = _wanted_gradients() if attention.is_backward else (True, True, True)
        self.add_attention(name, attention, gradients, mask=None)

    def add_attention(
        self,
        operator: str,
        attention: AttentionCall,
        gradients: tuple[bool, bool, bool],
        *,
        mask: Mask | None,
    ) -> None:
        """Write down a call of attention; ``mask`` where its caller knows it."""
        phase, module = self._place()
        sizes = (attention.rows, attention.queries, attention.keys, attention.heads)
        if not all(type(size) is int for size in sizes):
            self._do_not_know(operator, "its shape depends on data, which fake tensors do not have")
            return
        dtype, _ = number_type(attention.dtype, is_convolution=False, on_gpu=False)
        self.seen.append(
            Site(
                module=module,
                operator=operator,
                phase=phase,
                dtype=dtype,
                heads=attention.heads,
                kv_heads=attention.kv_heads,
                d_qk=attention.d_qk,
                d_v=attention.d_v,
                rows=attention.rows,
                queries=attention.queries,
                keys=attention.keys,
                mask=mask or self._mask_of(module, attention),
                gradients=gradients,
            )
        )

    def _mask_of(self, module: str, attention: AttentionCall) -> Mask | None:
        """What a call hides: as declared for its module, as its arguments say, or None."""
        declared = declared_mask(self._masks, module)
        if declared is not None:
            return declared
        if attention.inscrutable:
            return None
        if attention.bias is not None:
            return self._mask_of_bias(attention)
        if attention.boundaries is None:
            return attention.mask(None)
        field = self._fields.get(attention.boundaries)
        keys = attention.key_boundaries
        same = keys is None or self._fields.get(keys) == field
        return attention.mask(field) if field is not None and same else None

    def _mask_of_bias(self, attention: AttentionCall) -> Mask | None:
        """What a mask of known values hides, together with what the operator hides by itself."""
        assert attention.bias is not None
        mask = self._bias_sources.get(attention.bias, attention.bias)
        if mask not in self._bias_masks:
            values = self.known.of(mask)
            rule = None
            if values is not None and attention.mask(None).is_full:
                with real_tensors():
                    rule = recognise(values, rows=attention.rows)
            self._bias_masks[mask] = rule
        return self._bias_masks[mask]  # type: ignore[no-any-return]

    def know_bias(self, bias: torch.Tensor, mask: torch.Tensor) -> None:
        """Say that a bias was made of a mask, which is smaller."""
        self._bias_sources[bias] = mask


def declared_mask(masks: Mapping[str, Mask], module: str) -> Mask | None:
    """What was declared for a module, by its name or a pattern."""
    return next((mask for pattern, mask in masks.items() if fnmatchcase(module, pattern)), None)


def _name_of(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    return schema.name if schema is not None else f"higher_order::{func}"


def _by_name(func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **keywords}


def _is_recomputed() -> bool:
    """Whether the operator at hand is a forward that runs again: see the head of this file."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not _ENGINE:
        if frame.f_code is _MODULE_CALL or frame.f_code.co_filename == _CHECKPOINT_FILE:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _wanted_gradients() -> tuple[bool, bool, bool]:
    """Which of query, key and value the autograd node at work has to give a gradient to."""
    node = torch._C._current_autograd_node()
    edges = () if node is None else node.next_functions
    if len(edges) < 3:
        return (True, True, True)
    query, key, value = (edge[0] is not None for edge in edges[:3])
    return (query, key, value)
