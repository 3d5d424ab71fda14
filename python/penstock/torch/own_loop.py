"""Any PyTorch loop, observed: the rows of a run without its data, checkpoints or launcher."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, SupportsFloat, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from penstock.data.feed.framework_batch import FrameworkBatch
from penstock.errors import UsageError
from penstock.observe.steps import list_steps
from penstock.observe.steps.flop_record import FlopCount, FlopRecord
from penstock.observe.steps.loop_record import LoopRecord, waited_for
from penstock.observe.steps.recorder import StepRecorder, recorder_of
from penstock.state.ranks.launcher import place_of
from penstock.torch import gang
from penstock.torch.device.marks import marks_of, memory_of
from penstock.torch.device.readback import Readback, readback
from penstock.torch.step_hooks import StepHooks

#: What batches of tokens are called, by people and by Hugging Face.
_TOKENS = ("tokens", "input_ids")
#: What Hugging Face calls the mask of tokens that are no padding.
_MASK = "attention_mask"
Item = TypeVar("Item")


class ObservedLoop:
    """What ``observed`` gives. Steps are what lies between two calls of ``step``."""

    def __init__(
        self, model: nn.Module, optimizers: Sequence[Optimizer], into: Path, count: FlopCount | None = None
    ) -> None:
        self._model, self._optimizers, self._into, self._flop_count = model, optimizers, into, count
        self._flops: FlopRecord | None = None
        self._recorder: StepRecorder | None = None
        self._hooks: StepHooks | None = None
        self._record: LoopRecord | None = None
        #: The number of the step that is under way.
        self.number = 0

    @property
    def recorder(self) -> StepRecorder | None:
        """What writes the rows; None before the loop and where nothing can be written."""
        return self._recorder

    def __enter__(self) -> Self:
        if self._recorder is not None:
            raise UsageError(
                "this loop is observed already", hint="call penstock.torch.observed once for each loop"
            )
        rank = place_of().rank
        self._recorder = recorder_of(self._into, _life(self._into, rank), rank)
        if self._recorder is not None:
            device = next((parameter.device for parameter in self._model.parameters()), torch.device("cpu"))
            if device.type == "cuda":
                self._recorder.memory = lambda: memory_of(device)
            if self._flop_count is not None:
                name = torch.cuda.get_device_name(device) if device.type == "cuda" else "processor"
                self._flops = FlopRecord(self._flop_count, self._recorder, name)
            marks = marks_of(device, self._recorder)
            self._hooks = StepHooks(self._model, self._optimizers, self._recorder, marks)
            self._record = LoopRecord(self._recorder, self.number)
            self._record.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._recorder is None or self._hooks is None or self._record is None:
            return
        self._record.look()
        self._hooks.close()
        if value is None:
            # Nothing comes after the last step.
            self._recorder.pause()
        self._recorder.close()

    def data(self, batches: Iterable[Item]) -> Iterator[Item]:
        """The same batches; the time that each is waited for is counted as ``data``."""
        return waited_for(batches, self._recorder)

    def step(self, *, loss: Any = None, batch: Any = None, **scalars: SupportsFloat) -> None:
        """A step is over: what it gave, as numbers or tensors with one element, for which nothing waits; and the batch, whose tokens are counted."""
        if self._recorder is None or self._hooks is None or self._record is None:
            return
        if batch is not None:
            self._count(self._recorder, batch)
            if self._flops is not None:
                self._flops.add(batch)
        named = {**({} if loss is None else {"loss": loss}), **scalars}
        values = {name: _known(name, value) for name, value in named.items()}
        self._record.renumber(self.number)
        self._hooks.turn(self._record.end(values))
        self.number = self._record.number
        self._record.begin()

    def _count(self, recorder: StepRecorder, batch: Any) -> None:
        """Tokens by shape. A batch of ours knows which of them are padding, and so does a mask that is on the host; nothing waits for another."""
        if isinstance(batch, FrameworkBatch) and batch._of is not None:
            shape = batch._of.made
            recorder.fact("tokens", shape.rows * shape.length - batch._of.padding)
            recorder.fact("padding", batch._of.padding)
            return
        mask = None
        if isinstance(batch, Mapping):
            mask = batch.get(_MASK)
            batch = next((batch[name] for name in _TOKENS if name in batch), None)
        if not isinstance(batch, torch.Tensor) or batch.is_floating_point():
            return
        tokens = batch.numel()
        if isinstance(mask, torch.Tensor) and mask.device.type == "cpu" and mask.shape == batch.shape:
            real = int(torch.count_nonzero(mask))
            recorder.fact("padding", tokens - real)
            tokens = real
        recorder.fact("tokens", tokens)


def _known(name: str, value: Any) -> float | Readback:
    """A number, or one that is on its way to the host: nothing waits for it."""
    read = readback(value)
    try:
        return read if isinstance(read, Readback) else float(read)
    except (TypeError, ValueError):
        raise UsageError(
            f"{name} must be a number or a tensor with one element, got {value!r:.80}",
            hint="take its mean or its sum",
        ) from None


def observed(
    model: nn.Module | Sequence[nn.Module],
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    into: str | os.PathLike[str],
    flops: FlopCount | None = None,
) -> ObservedLoop:
    """Record where the time of your own loop goes, below a directory; use it as a context.

    Call ``seen.step(loss=…, batch=…)`` at the end of every step, and iterate ``seen.data(loader)`` to have waits for batches told apart. Forward,
    backward and optimizer are seen by themselves. Works under any launcher, each rank for itself; no bit of training changes. With
    ``flops``, of ``penstock.torch.flops``, what each batch costs is counted, for the MFU. Several models that the loop calls are given as a list.
    ``seen.number`` is the number of the step under way; set it where training goes on from a later one.
    """
    models = model if isinstance(model, nn.Module) else nn.ModuleList(model)
    optimizers = (
        [] if optimizer is None else [optimizer] if isinstance(optimizer, Optimizer) else [*optimizer]
    )
    return ObservedLoop(models, optimizers, Path(into), flops)


def _life(into: Path, rank: int) -> int:
    """The next life below a directory; of ranks that are a group, what rank 0 has chosen."""
    mine = 1 + max((life for life, number in list_steps(into) if number == rank), default=-1)
    return int(gang.share(str(mine).encode()))
