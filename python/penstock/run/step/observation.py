"""What a life tells about its steps while it executes them: a row each, unless recording is off."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from penstock.data.feed.batch import Batch
from penstock.data.feed.framework_batch import FrameworkBatch
from penstock.data.feed.prefetch import Prefetch
from penstock.observe.steps import PARTS, StepRecorder
from penstock.observe.steps.clock import boottime_ns
from penstock.observe.steps.flop_record import FlopCount, FlopRecord
from penstock.run.start.watcher_process import watched_life

_NOTHING: AbstractContextManager[None] = nullcontext()


class Hooks(Protocol):
    """What a framework's state gives that tells a recorder about forward, backward and optimizer (its ``observe``)."""

    def turn(self, row: int | None) -> None:
        """The step is over; its row, if it has one."""

    def close(self) -> None:
        """Tell nothing more."""


class Observation:
    """Of one life. Without a recorder it does nothing, and training is the same either way (O8)."""

    def __init__(self, recorder: StepRecorder | None, state: object = None) -> None:
        self.recorder = recorder
        observe = getattr(state, "observe", None)
        #: Of the framework, where the state has a model and optimizers.
        self._hooks: Hooks | None = None if recorder is None or observe is None else observe(recorder)
        self._device = str(getattr(state, "device_name", ""))
        self._flops: FlopRecord | None = None
        self._watched = (
            None if recorder is None else watched_life(recorder.directory, recorder.life, recorder.rank)
        )

    def count(self, flops: FlopCount) -> None:
        """Count the FLOPs of every step from now on."""
        if self.recorder is not None:
            self._flops = FlopRecord(flops, self.recorder, self._device)

    def open(self, batches: Prefetch[Any]) -> Prefetch[Any]:
        """The batches that the steps are about to train on. Where a framework has a device, bringing them there is a part."""
        if self.recorder is not None and self._hooks is not None:
            batches.turning = self.recorder.part("transfer")
        return batches

    def begin(self, step: int) -> None:
        """The loop asks for the batch of a step."""
        if self.recorder is not None:
            self.recorder.begin(step)

    def part(self, name: str) -> AbstractContextManager[None]:
        """A block whose time belongs to a part; that of a name that is none stays where it is."""
        return _NOTHING if self.recorder is None or name not in PARTS else self.recorder.part(name)

    def batch(self, batch: Any, batches: Prefetch[Any]) -> None:
        """What the step trains on, and how its feed stands."""
        recorder = self.recorder
        if recorder is None:
            return
        recorder.begin(batch.step)
        host = batch._of if isinstance(batch, FrameworkBatch) else batch
        if isinstance(host, Batch):
            shape = host.made
            recorder.fact("bytes_read", host.size_bytes)
            if not batches.plan.records:
                padding = host.padding
                recorder.fact("tokens", shape.rows * shape.length - padding)
                recorder.fact("padding", padding)
        if self._flops is not None:
            self._flops.add(batch)
        recorder.feed(*batches.standing())

    def exchanged(self) -> None:
        """Every rank has come to the exchange of this step: a moment that all of them share."""
        if self.recorder is not None:
            self.recorder.fact("exchanged", boottime_ns())

    def end(self, step: int) -> None:
        """The step is over."""
        if self.recorder is not None:
            row = self.recorder.end(step)
            if self._hooks is not None:
                self._hooks.turn(row)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers that the program gave in a step, once they are known."""
        if self.recorder is not None:
            for name, value in values.items():
                self.recorder.scalar(step, name, value)

    def commit(self, step: int) -> None:
        """The checkpoint before a step exists."""
        if self.recorder is not None:
            self.recorder.commit(step)

    def pause(self) -> None:
        """What comes now is in no step."""
        if self.recorder is not None:
            self.recorder.pause()

    def close(self) -> None:
        """The life ends. A step that is still under way was not finished."""
        if self._hooks is not None:
            self._hooks.close()
        if self.recorder is not None:
            self.recorder.close()
        if self._watched is not None:
            self._watched.close()
