"""The rows of a loop that is not ours: steps are what lies between two calls, and values come when the device has them."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from penstock.observe.steps.recorder import StepRecorder

#: Values of a device that are not here yet; the oldest are given up when there are more.
_COMING_MAX = 1024
Item = TypeVar("Item")
_END: Any = object()


class Coming(Protocol):
    """A value that a device is still computing."""

    def is_here(self) -> bool:
        """Whether it can be read without a wait."""

    def item(self) -> float:
        """The value."""


class LoopRecord:
    """Of one loop in one thread, from ``begin`` on."""

    def __init__(self, recorder: StepRecorder, number: int = 0) -> None:
        self.recorder = recorder
        #: The number of the step that is under way.
        self.number = number
        self._coming: deque[tuple[int, str, Coming]] = deque(maxlen=_COMING_MAX)

    def begin(self) -> None:
        """A step begins: the body of the loop is the user's, as far as nothing else is known of it."""
        self.recorder.begin(self.number)
        self.recorder.enter("user")

    def renumber(self, number: int) -> None:
        """The step that is under way has another number, as where training goes on from a later one."""
        if number != self.number:
            self.number = number
            self.recorder.begin(number)

    def end(self, values: Mapping[str, "float | Coming"]) -> int | None:
        """The step is over; its row, by number. The next one has to be begun."""
        for name, value in values.items():
            if isinstance(value, int | float):
                self.recorder.scalar(self.number, name, float(value))
            else:
                self._coming.append((self.number, name, value))
        row = self.recorder.end(self.number)
        self.look()
        self.number += 1
        return row

    def look(self) -> None:
        """Keep values that are here by now."""
        while self._coming and self._coming[0][2].is_here():
            step, name, value = self._coming.popleft()
            self.recorder.scalar(step, name, float(value.item()))


def waited_for(batches: Iterable[Item], recorder: StepRecorder | None) -> Iterator[Item]:
    """The same batches; the time that each is waited for is counted as ``data``."""
    items = iter(batches)
    while True:
        if recorder is not None:
            recorder.enter("data")
        try:
            item = next(items, _END)
        finally:
            if recorder is not None:
                recorder.leave()
        if item is _END:
            return
        yield item
