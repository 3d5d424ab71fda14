"""Where a step's time goes on the device: marks on its stream, read by another thread when they are over. Nobody waits for the device (O6).

Consecutive parts share a mark: what lies between two marks belongs to the part that the first one began. Where the mark before was over already when
the next one was made, the device had nothing to do, and what lies between them outside of forward, backward, optimizer and evaluation is ``idle``.
"""

import threading
import time
from collections import deque
from itertools import pairwise
from typing import Any

import torch

from penstock.observe.steps import StepRecorder
from penstock.torch.device.current_stream import CurrentStream

#: Steps whose marks are not over; those of more are not measured.
_STEPS_MAX = 32
#: Marks of one step; a step of more parts gives the rest of its time to the last.
_MARKS_MAX = 1024
#: Seconds between two looks at what is over.
_LOOK_S = 0.05
_WORK = frozenset({"forward", "backward", "optimizer", "eval"})

#: The part that a mark begins, whether the mark before it was over when it was made, and the mark.
_Mark = tuple[str, bool, torch.cuda.Event]


class DeviceMarks:
    """Of the stream of one device that was current when the step began."""

    def __init__(self, device: torch.device, recorder: StepRecorder) -> None:
        self._recorder = recorder
        self._current = CurrentStream(device)
        #: Looked up once a step.
        self._stream = self._current.get()
        self._marks: list[_Mark] = []
        #: A deque, because another thread gives events back.
        self._free: deque[torch.cuda.Event] = deque()
        #: Steps whose marks are on their way: row and marks, of which the last is the next step's first.
        self._coming: deque[tuple[int, list[_Mark]]] = deque()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="penstock-marks", daemon=True)
        self._thread.start()

    def mark(self, part: str) -> None:
        """From here on the device's time belongs to a part."""
        marks = self._marks
        if len(marks) >= _MARKS_MAX:
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
        else:
            self._free.extend(event for _, _, event in marks[:-1])

    def close(self) -> None:
        """No more marks; what is not over is not measured."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _read(self) -> None:
        while not self._ended.wait(_LOOK_S):
            while self._coming and self._coming[0][1][-1][2].query():
                row, marks = self._coming.popleft()
                self._tell(row, marks)
        # A loop that has ended has usually waited for its last steps.
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
