"""What ``torch.compile`` does while a loop goes on, by dynamo's own counters: one note for each graph, forward and backward.

Asked after every step. Nothing is asked of a program that has not imported dynamo, and an import of it costs seconds, so it is never imported here.
"""

import sys
import time
from typing import Any

from penstock.observe.steps import StepRecorder
from penstock.observe.steps.clock import boottime_ns
from penstock.observe.steps.compile_file import CompileFile

_UTILS = "torch._dynamo.utils"


class CompileWatch:
    """Of one loop."""

    def __init__(self, recorder: StepRecorder) -> None:
        self._file = CompileFile(recorder.beside(".compiles"))
        #: Nothing that was over before the loop is its own.
        self._since = time.time_ns()
        self._latest: Any = None

    def look(self) -> None:
        """Keep what was compiled since the last look."""
        notes = getattr(sys.modules.get(_UTILS), "_compilation_metrics", None)
        if not notes or notes[-1] is self._latest:
            return
        # Its notes are of the wall clock.
        ahead = time.time_ns() - boottime_ns()
        fresh: list[Any] = []
        for note in reversed(notes):
            if note is self._latest:
                break
            fresh.append(note)
        self._latest = notes[-1]
        for note in reversed(fresh):
            began, took = getattr(note, "start_time_us", None), getattr(note, "duration_us", None)
            if began is None or not took or (began + took) * 1000 < self._since:
                continue
            begin = began * 1000 - ahead
            self._file.add(begin, begin + took * 1000, _what(note), _why(note))


def _what(note: Any) -> str:
    if not getattr(note, "co_filename", None):
        return ""
    return f"{note.co_filename}:{note.co_firstlineno} {note.co_name}"


def _why(note: Any) -> str:
    """Dynamo says what did not hold of the graph before, as ``0/0: tensor 'x' size mismatch …``."""
    reason = str(getattr(note, "recompile_reason", None) or "")
    return reason.partition(": ")[2].split("\n")[0] or reason
