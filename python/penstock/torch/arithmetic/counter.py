"""``penstock.torch.flops``: what a model costs, traced on fake tensors, without a GPU or weights."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from penstock.errors import ModelUntraceable
from penstock.observe.flops import Mask, ModelFlops, StepFlops
from penstock.observe.flops.dimension import other_shape
from penstock.torch.arithmetic import operators
from penstock.torch.arithmetic.batch_layout import layout_of, shape_of

if TYPE_CHECKING:
    from penstock.torch.arithmetic.tracer import Forward


@dataclass(frozen=True)
class Flops(ModelFlops):
    """What tracing a torch model found; ``step`` gives the exact integers of a batch."""

    def step(self, batch: Any, *, real: Any = None) -> StepFlops:
        """The FLOPs of a step with this batch.

        Boundaries (``cu_seqlens``) are read where they are on the host: a batch of a Penstock loader has them there. ``real`` says
        how many tokens of each row are not padding, where the batch itself does not.
        """
        return self.count(layout_of(batch, real=real))


class FlopCounter:
    """Counts models; knows what operators cost."""

    def __call__(
        self,
        model: torch.nn.Module,
        batch: Any,
        *,
        forward: "Forward | None" = None,
        masks: Mapping[str, Mask] | None = None,
        autocast: torch.dtype | None = None,
        shapes: Sequence[Any] = (),
        backward: bool = True,
    ) -> Flops:
        """Trace forward and backward of a model on fake tensors, at the batch's shape and at another.

        ``forward(model, batch)`` calls the model, where ``model(**batch)`` or ``model(batch)`` would not; it returns a loss, or
        anything with tensors, whose squares are then the loss. ``masks`` declares what attention with a mask hides, by the name of the
        module or a pattern of it. ``autocast`` is the type that products run in under autocast. ``shapes`` are further batches,
        whose shapes are traced because something in the model is not linear in tokens.
        """
        from penstock.torch.arithmetic.fake_model import bare
        from penstock.torch.arithmetic.tracer import Tracer

        tracer = Tracer(bare(model), forward, dict(masks or {}), autocast, backward)
        first = tracer.trace(batch, shape_of(batch))
        traces = [first]
        if not first.unknown:
            with contextlib.suppress(ModelUntraceable):
                # A model may refuse the other shape; then only the shapes that were given are known.
                traces.append(tracer.trace(batch, other_shape(first.shape)))
        traces += [tracer.trace(other, shape_of(other)) for other in shapes]
        return Flops(tuple(traces))

    @staticmethod
    def register(operator: str, formula: "Callable[..., int] | None") -> None:
        """Say what the operator ``"namespace::name"`` costs: a function of its arguments by name, or None for nothing."""
        operators.register(operator, formula)


flops = FlopCounter()
"""Count what a model costs: call it, or ``register`` what an operator costs."""
