"""What JAX compiles while a loop goes on, as its own monitoring tells: tracing, lowering, and the compiler behind them."""

import threading

from jax import monitoring

from penstock.observe.steps import StepRecorder
from penstock.observe.steps.clock import boottime_ns
from penstock.observe.steps.compile_file import CompileFile

_EVENT = "/jax/core/compile/"
#: Shorter ones are single operations, which every program compiles by the dozen.
_LEAST_S = 0.001
_lock = threading.Lock()
#: Listeners cannot be taken back, so there is one for the process, which asks who listens now.
_listening: "list[CompileEvents]" = []
_is_registered = False


class CompileEvents:
    """Of one loop, until ``close``."""

    def __init__(self, recorder: StepRecorder) -> None:
        self._file = CompileFile(recorder.beside(".compiles"))
        self._thread = recorder.thread
        #: Functions that were compiled before: the next time something about them has changed.
        self._names: set[str] = set()
        global _is_registered
        with _lock:
            _listening.append(self)
            if not _is_registered:
                monitoring.register_event_duration_secs_listener(_heard)
                _is_registered = True

    def turn(self, row: int | None) -> None:
        """Nothing is kept from one step to the next."""

    def close(self) -> None:
        """Listen no more."""
        with _lock:
            if self in _listening:
                _listening.remove(self)

    def add(self, event: str, seconds: float, function: str) -> None:
        """Something was compiled, and is over now."""
        if seconds < _LEAST_S or threading.get_ident() != self._thread:
            return
        end = boottime_ns()
        is_compiled = event.endswith("backend_compile_duration")
        why = "its arguments have other shapes, types or values" if function in self._names else ""
        if is_compiled:
            self._names.add(function)
        self._file.add(end - int(seconds * 1e9), end, function, why if is_compiled else "")


def _heard(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event.startswith(_EVENT):
        with _lock:
            listening = list(_listening)
        for one in listening:
            one.add(event.removeprefix(_EVENT), duration_secs, str(kwargs.get("fun_name", "")))
