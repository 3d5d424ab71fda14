"""From the feed's memory to tensors on a device.

Tokens cross in the type in which they are stored (two bytes rather than eight) and become ``torch.long`` on the other side.
On CUDA they go through pinned memory and a stream of their own, so copying batch k+1 runs beside training on batch k; the
training stream waits for an event, never the Python thread.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from penstock.data import Batch as HostBatch
from penstock.data.batch import FIELDS
from penstock.errors import UsageError
from penstock.torch.batch import Batch

#: Names of fields, or names with the types they are wanted in (None: as stored).
Fields = Sequence[str] | Mapping[str, torch.dtype | None]


def types_of(fields: Fields) -> dict[str, torch.dtype | None]:
    """The wanted fields with their types: tokens as ``torch.long`` unless said otherwise, the rest as stored."""
    if isinstance(fields, str):
        raise UsageError(f"fields is the text {fields!r}", hint=f"give a tuple: ({fields!r},)")
    given = dict(fields) if isinstance(fields, Mapping) else {name: _default(name) for name in fields}
    for name in given:
        if name not in FIELDS:
            raise UsageError(f"a batch has no field {name!r}", hint=f"its fields are {', '.join(FIELDS)}")
    return given


class Transfer:
    """Turns batches of a feed into batches of tensors."""

    def __init__(self, device: torch.device | str | int | None, fields: Fields) -> None:
        self._types = types_of(fields)
        self.device = torch.device("cpu" if device is None else device)
        self._stream: torch.cuda.Stream | None = None
        if self.device.type == "cuda":
            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            self.device = torch.device("cuda", index)
            self._stream = torch.cuda.Stream(self.device)

    def __call__(self, batch: HostBatch) -> Batch:
        """Start moving a batch; ``arrived`` makes it usable."""
        staged = {name: self._staged(batch[name]) for name in self._types}
        with torch.cuda.stream(self._stream):
            turned = Batch({name: self._moved(name, host) for name, host in staged.items()}, of=batch)
        if self._stream is not None:
            turned._arrive = _arrival(turned, self._stream)
        return turned

    def _staged(self, array: npt.NDArray[Any]) -> torch.Tensor:
        """A copy that is ours: the feed's memory may not be written to, and only pinned memory is copied beside the loop."""
        host = torch.empty(array.shape, dtype=_stored(array.dtype), pin_memory=self._stream is not None)
        np.copyto(host.numpy(), array)
        return host

    def _moved(self, name: str, host: torch.Tensor) -> torch.Tensor:
        return host.to(self.device, non_blocking=True).to(self._types[name] or host.dtype)


def arrived(batch: Batch) -> Batch:
    """The same batch, usable on the current stream."""
    if batch._arrive is not None:
        batch._arrive()
        batch._arrive = None
    return batch


def _arrival(batch: Batch, stream: torch.cuda.Stream) -> Any:
    event = stream.record_event()
    tensors = list(batch.values())

    def arrive() -> None:
        current = torch.cuda.current_stream(stream.device)
        current.wait_event(event)
        for tensor in tensors:
            # Its memory belongs to the copying stream, which must not reuse it while training reads it.
            tensor.record_stream(current)

    return arrive


def _default(name: str) -> torch.dtype | None:
    return torch.long if name == "tokens" else None


def _stored(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
