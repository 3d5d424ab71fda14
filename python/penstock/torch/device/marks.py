"""Where a step's time goes on the device: marks on its stream, read by another thread when they are over. Nobody waits for the device (O6).

Consecutive parts share a mark: what lies between two marks belongs to the part that the first one began. Where the mark before was over already when
the next one was made, the device had nothing to do, and what lies between them outside of forward, backward, optimizer and evaluation is ``idle``.
"""

import random
import threading
import time
from collections import deque
from itertools import pairwise
from typing import Any

import torch

from penstock.observe.steps import StepRecorder
from penstock.torch.device.current_stream import CurrentStream
from penstock.torch.device.driver import beside_captures, driver

#: Steps whose marks are not over; those of more are not measured. Rows take values for as long.
_STEPS_MAX = 60
#: So many are looked at before their time.
_STEPS_MANY = 16
#: Marks of one step; a step of more parts gives the rest of its time to the last.
_MARKS_MAX = 1024
#: Seconds between two looks at what is over: in the mean. Chance keeps them out of step with what is periodic.
_LOOK_S = 0.05
_WORK = frozenset({"forward", "backward", "optimizer", "eval"})

#: The part that a mark begins, whether the mark before it was over when it was made, and the mark.
_Mark = tuple[str, bool, torch.cuda.Event]


class DeviceMarks:
    """Of the stream of one device that was current when the step began."""

    def __init__(self, device: torch.device, recorder: StepRecorder) -> None:
        self._device, self._recorder = device, recorder
        self._current = CurrentStream(device)
        #: Looked up once a step.
        self._stream = self._current.get()
        self._marks: list[_Mark] = []
        #: A deque, because another thread gives events back.
        self._free: deque[torch.cuda.Event] = deque()
        #: Steps whose marks are on their way: row and marks, of which the last is the next step's first.
        self._coming: deque[tuple[int, list[_Mark]]] = deque()
        self._is_closed = False
        self._wake = threading.Event()
        #: How often the stream was looked at since the last row that was told, and how often it had nothing to do.
        self._looks, self._idle_looks = 0, 0
        self._thread = threading.Thread(target=self._read, name="penstock-marks", daemon=True)
        self._thread.start()

    def mark(self, part: str) -> None:
        """From here on the device's time belongs to a part. Inside of a graph that is captured nothing is marked: it is not executed now."""
        marks = self._marks
        if len(marks) >= _MARKS_MAX or self._current.is_capturing():
            return
        was_over = False
        if marks:
            before = marks[-1]
            # Asked only where the answer counts: of work it is known that the device was busy.
            was_over = before[0] not in _WORK and before[2].query()
        try:
            event = self._free.popleft()
        except IndexError:
            event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        marks.append((part, was_over, event))

    def turn(self, row: int | None) -> None:
        """The step is over; what comes belongs to the next one. Marks of a step without a row are given back."""
        self.mark("rest")
        self._stream = self._current.get()
        marks, self._marks = self._marks, self._marks[-1:]
        if row is not None and len(marks) > 1 and len(self._coming) < _STEPS_MAX:
            self._coming.append((row, marks))
            if len(self._coming) == _STEPS_MANY:
                self._wake.set()
        else:
            self._free.extend(event for _, _, event in marks[:-1])

    def close(self) -> None:
        """No more marks; what is not over is not measured."""
        self._is_closed = True
        self._wake.set()
        self._thread.join(timeout=5)

    def _read(self) -> None:
        try:
            # The driver asks about streams of the thread's own device.
            torch.cuda.set_device(self._device)
            with beside_captures():
                self._look_until_closed()
                # A loop that has ended has usually waited for its last steps.
                self._tell_what_is_over()
        except RuntimeError:
            # The device does not answer any more, which its owner hears of at the next call.
            return

    def _look_until_closed(self) -> None:
        chance = random.Random(0)
        next_look = time.monotonic()
        while not self._is_closed:
            # Woken up by a step that ends it does not look: those moments are no chance.
            if self._wake.wait(max(0.0, next_look - time.monotonic())):
                self._wake.clear()
            else:
                next_look = time.monotonic() + chance.uniform(0.5, 1.5) * _LOOK_S
                self._look()
            self._tell_what_is_over()

    def _look(self) -> None:
        """Whether the stream has nothing to do at this moment: inside of forward and backward no mark tells that."""
        calls = driver()
        if calls is None or self._recorder.under_way() is None or calls.is_capturing(self._current.handle):
            return
        self._looks += 1
        self._idle_looks += self._stream.query()

    def _tell_what_is_over(self) -> None:
        while self._coming and self._coming[0][1][-1][2].query():
            self._tell(*self._coming.popleft())

    def _tell(self, row: int, marks: list[_Mark]) -> None:
        # A marked step in which the device never waited has idled for no time, which is not the same as unmeasured.
        sums = {"idle": 0}
        for (part, _, begin), (_, was_over, end) in pairwise(marks):
            account = "idle" if was_over else part
            sums[account] = sums.get(account, 0) + round(begin.elapsed_time(end) * 1e6)
            # Gives Python's lock back: the loop's thread comes first.
            time.sleep(0)
        for account, ns in sums.items():
            self._recorder.late(row, f"device.{account}", ns)
        if self._looks:
            self._recorder.late(row, "device_looks", self._looks)
            self._recorder.late(row, "device_idle_looks", self._idle_looks)
            self._looks, self._idle_looks = 0, 0
        self._free.extend(event for _, _, event in marks[:-1])


def marks_of(device: torch.device, recorder: StepRecorder) -> DeviceMarks | None:
    """Marks on a CUDA device; elsewhere the host does the work."""
    return DeviceMarks(device, recorder) if device.type == "cuda" else None


def memory_of(device: torch.device) -> dict[str, Any]:
    """Peak and reserved bytes of the device's allocator, and how often it had to free before it could give."""
    if device.type != "cuda":
        return {}
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    return {
        "memory_peak": stats["allocated_bytes"]["all"]["peak"],
        "memory_reserved": stats["reserved_bytes"]["all"]["current"],
        "allocator_retries": stats["num_alloc_retries"],
    }
