"""The stream that work is launched on now, asked for in a fraction of what recording an event on it costs."""

import torch


class CurrentStream:
    """Of one device. PyTorch makes a new object whenever it is asked, which takes three times as long as recording an event; this one keeps the last."""

    def __init__(self, device: torch.device) -> None:
        self._index = torch.cuda.current_device() if device.index is None else device.index
        self.handle = -1
        self._stream: torch.cuda.Stream | None = None

    def get(self) -> torch.cuda.Stream:
        """The stream, and its address in ``handle``."""
        handle = torch._C._cuda_getCurrentRawStream(self._index)
        if self._stream is None or handle != self.handle:
            self._stream, self.handle = torch.cuda.current_stream(self._index), handle
        return self._stream

    def is_capturing(self) -> bool:
        """Whether work that is launched now goes into a graph. The default stream cannot be captured, and is asked for in a tenth of the time."""
        handle = torch._C._cuda_getCurrentRawStream(self._index)
        return bool(handle and torch._C._cuda_isCurrentStreamCapturing())

    def is_current_device(self) -> bool:
        """Whether the driver launches on this device when nobody says which."""
        return torch._C._cuda_getDevice() == self._index
