"""How long the parts of a step take on the device, which the host only launches. Nobody waits for the answer."""

from collections import deque

import torch

#: Parts that were not over when they were last looked at; the oldest is forgotten when there are more.
_PARTS_MAX = 4096


class DeviceTimer:
    """Marks on the current stream of a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begun: dict[str, tuple[int, torch.cuda.Event]] = {}
        self._ended: deque[tuple[str, int, torch.cuda.Event, torch.cuda.Event]] = deque(maxlen=_PARTS_MAX)

    def begin(self, name: str, step: int) -> None:
        """Something begins, after what was launched before."""
        self._begun[name] = (step, self._mark())

    def end(self, name: str) -> None:
        """It ends with what was launched until now."""
        step, begin = self._begun.pop(name)
        self._ended.append((name, step, begin, self._mark()))

    def measured(self) -> list[tuple[str, int, float]]:
        """Name, step and seconds of what is over by now, oldest first."""
        times = []
        while self._ended and self._ended[0][3].query():
            name, step, begin, end = self._ended.popleft()
            times.append((name, step, begin.elapsed_time(end) / 1000))
        return times

    def _mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event
