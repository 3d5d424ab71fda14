"""Runs a model's forward and backward on fake tensors, at one shape at a time.

Apart from ``counter.py`` because torch's fake tensors take a second to import, which only counting needs.
"""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from penstock.errors import ModelUntraceable
from penstock.observe.flops import Mask, Unknown
from penstock.observe.flops.dimension import Shape
from penstock.observe.flops.model_flops import ShapeTrace
from penstock.torch.arithmetic.batch_layout import is_boundaries, shape_of
from penstock.torch.arithmetic.fake_model import device_of, fake_batch, fake_parameters, resized
from penstock.torch.arithmetic.interception import Interception
from penstock.torch.arithmetic.trace import Trace

Forward = Callable[[torch.nn.Module, Any], Any]
#: What tells that values decide what runs, which fake tensors do not have.
_DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)


@dataclass(frozen=True, slots=True)
class Tracer:
    """A model and how it is called."""

    model: torch.nn.Module
    forward: Forward | None
    masks: Mapping[str, Mask]
    autocast: torch.dtype | None
    backward: bool

    def trace(self, batch: Any, shape: Shape) -> ShapeTrace:
        """What runs for a batch of this shape."""
        with (
            torch.autograd.set_multithreading_enabled(False),
            _uncompiled(),
            _flex_anywhere(),
        ):
            return self._trace(batch, shape)

    def _trace(self, batch: Any, shape: Shape) -> ShapeTrace:
        mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True)
        device = device_of(self.model)
        original = shape_of(batch)
        fake = fake_batch(batch, lambda tensor, name: resized(tensor, name, original, shape), mode, device)
        names = {module: name for name, module in self.model.named_modules()}
        trace = Trace(names, self.masks)
        if isinstance(fake, Mapping):
            for name, value in fake.items():
                if isinstance(value, torch.Tensor) and is_boundaries(name, value):
                    trace.know_field(name, value)
        try:
            with fake_parameters(self.model, mode, device), mode, trace, Interception(trace):
                self._run(trace, fake, device)
        except _DATA_DEPENDENT as reason:
            trace.unknown.append(
                Unknown(trace.module, trace.last_operator, f"values decide what runs: {_line(reason)}")
            )
        except ModelUntraceable:
            raise
        except Exception as reason:
            # Whatever a model's own code raises on fake tensors: the answer is the same, no count.
            raise ModelUntraceable(
                reason=_line(reason), module=trace.module, operator=trace.last_operator
            ) from reason
        return ShapeTrace(shape, tuple(trace.seen), tuple(dict.fromkeys(trace.unknown)))

    def _run(self, trace: Trace, batch: Any, device: torch.device) -> None:
        cast = (
            contextlib.nullcontext()
            if self.autocast is None
            else torch.autocast(device.type, self.autocast, cache_enabled=False)
        )
        with trace.watch_modules():
            with cast, torch.set_grad_enabled(self.backward):
                loss = _loss_of((self.forward or _call)(self.model, batch))
            if self.backward:
                if loss is None:
                    raise ModelUntraceable(
                        reason="its result has no gradient", hint="backward=False counts the forward alone"
                    )
                trace.in_backward = True
                # Not loss.backward(): that would suspend the interception, which checkpointed forwards need.
                torch.autograd.graph._engine_run_backward(
                    (loss,),
                    (torch.ones_like(loss),),
                    False,
                    False,
                    (),
                    allow_unreachable=True,
                    accumulate_grad=True,
                )


def _uncompiled() -> contextlib.AbstractContextManager[Any]:
    """Compiled modules run as they were written; releases before 2.6 have no such switch and trace bare modules alone."""
    stance: Any = getattr(torch.compiler, "set_stance", None)
    return contextlib.nullcontext() if stance is None else stance("force_eager")


@contextlib.contextmanager
def _flex_anywhere() -> Iterator[None]:
    """Lets flex attention have gradients where a processor stands for the device: it is only written down."""
    module: Any = sys.modules.get("torch.nn.attention.flex_attention")
    check = getattr(module, "_validate_device", None)
    if check is None:
        yield
        return
    module._validate_device = lambda *tensors: None
    try:
        with warnings.catch_warnings():
            # It is not compiled because nothing is computed.
            warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
            yield
    finally:
        module._validate_device = check


def _call(model: torch.nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def _loss_of(result: Any) -> torch.Tensor | None:
    """The loss that a model gives, or the squares of whatever it gives."""
    loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
    leaves = [loss] if loss is not None else torch.utils._pytree.tree_leaves(result)
    # Squares have gradients with a memory of their own, as losses have, and not one number spread out.
    parts = [
        leaf if leaf.dim() == 0 else leaf.square().sum()
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and not leaf.is_complex()
    ]
    return sum(parts[1:], start=parts[0]) if parts else None


def _line(reason: BaseException) -> str:
    return str(reason).strip().split("\n")[0][:300] or type(reason).__name__
