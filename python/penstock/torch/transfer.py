"""From the feed's memory to tensors on a device.

Tokens cross in the type in which they are stored (two bytes rather than eight) and become ``torch.long`` on the other side.
On CUDA they go through pinned memory and a stream of their own, so copying batch k+1 runs beside training on batch k; the
training stream waits for an event, never the Python thread.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from penstock import events
from penstock.data import Batch as HostBatch
from penstock.data.feed.token_batch import FIELDS
from penstock.errors import UsageError
from penstock.torch.batch import Batch

#: Names of fields, or names with the types they are wanted in (None: as stored).
Fields = Sequence[str] | Mapping[str, torch.dtype | None]
#: What a batch of tokens has unless something else is asked for.
TOKEN_FIELDS = ("tokens", "cu_seqlens")


def types_of(fields: Fields | None, *, records: bool = False) -> dict[str, torch.dtype | None] | None:
    """The wanted fields with their types: tokens as ``torch.long`` unless said otherwise, the rest as stored.

    None for all fields, which is what records have unless some are chosen; which they are is known when a batch is there.
    """
    if isinstance(fields, str):
        raise UsageError(
            f"fields must be a tuple of names, got the text {fields!r}", hint=f"give a tuple: ({fields!r},)"
        )
    if fields is None:
        return None if records else {name: _default(name) for name in TOKEN_FIELDS}
    if records:
        return dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields)
    types = dict(fields) if isinstance(fields, Mapping) else {name: _default(name) for name in fields}
    for name in types:
        if name not in FIELDS:
            raise UsageError(f"a batch has no field {name!r}", hint=f"its fields are {', '.join(FIELDS)}")
    return types


class Transfer:
    """Turns batches of a feed into batches of tensors."""

    def __init__(
        self, device: torch.device | str | int | None, fields: Fields | None, *, records: bool = False
    ) -> None:
        self._types = types_of(fields, records=records)
        self.device = torch.device("cpu" if device is None else device)
        self._stream: torch.cuda.Stream | None = None
        if self.device.type == "cuda":
            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            self.device = torch.device("cuda", index)
            self._stream = torch.cuda.Stream(self.device)

    def __call__(self, batch: HostBatch) -> Batch:
        """Start moving a batch; ``arrived`` makes it usable."""
        types = dict.fromkeys(batch) if self._types is None else self._types
        with events.span("data.stage", step=batch.step):
            staged = {name: self._staged(_field(batch, name)) for name in types}
        with events.span("data.h2d", step=batch.step), torch.cuda.stream(self._stream):
            turned = Batch(
                {name: self._moved(value, types[name]) for name, value in staged.items()}, of=batch
            )
        if self._stream is not None:
            turned._arrive = _arrival(turned, self._stream)
        return turned

    def _staged(self, values: Any) -> Any:
        """A copy that is ours: the feed's memory may not be written to, and only pinned memory is copied beside the loop."""
        dtype = _stored(values.dtype) if isinstance(values, np.ndarray) else None
        if dtype is None:
            return values
        host = torch.empty(values.shape, dtype=dtype, pin_memory=self._stream is not None)
        # Numpy does not know bfloat16, so those are copied as the two bytes that they are.
        bits = dtype == torch.bfloat16
        np.copyto(
            host.view(torch.uint16).numpy() if bits else host.numpy(),
            values.view(np.uint16) if bits else values,
        )
        return host

    def _moved(self, host: Any, wanted: torch.dtype | None) -> Any:
        if not isinstance(host, torch.Tensor):
            return host
        return host.to(self.device, non_blocking=True).to(wanted or host.dtype)


def _field(batch: HostBatch, name: str) -> Any:
    try:
        return batch[name]
    except KeyError:
        hint = f"its fields are {', '.join(batch)}"
        raise UsageError(f"the batch of step {batch.step} has no field {name!r}", hint=hint) from None


def arrived(batch: Batch) -> Batch:
    """The same batch, usable on the current stream."""
    if batch._arrive is not None:
        batch._arrive()
        batch._arrive = None
    return batch


def _arrival(batch: Batch, stream: torch.cuda.Stream) -> Any:
    event = stream.record_event()
    tensors = [value for value in batch.values() if isinstance(value, torch.Tensor)]

    def arrive() -> None:
        current = torch.cuda.current_stream(stream.device)
        current.wait_event(event)
        for tensor in tensors:
            # Its memory belongs to the copying stream, which must not reuse it while training reads it.
            tensor.record_stream(current)

    return arrive


def _default(name: str) -> torch.dtype | None:
    return torch.long if name == "tokens" else None


def _stored(dtype: np.dtype[Any]) -> torch.dtype | None:
    """The type of a tensor that holds such values, if there is one; text and dates have none."""
    if dtype.name == "bfloat16":
        return torch.bfloat16
    if dtype.kind not in "biufc":
        return None
    try:
        return torch.from_numpy(np.empty(0, dtype.newbyteorder("="))).dtype
    except TypeError:
        return None
