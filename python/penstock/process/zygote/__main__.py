"""Where the zygote begins. A rank comes back to this very level before the user's program runs.

So nothing of ours stands below the program but this module's frame, and its end is the normal end of an interpreter: threads are
joined, ``atexit`` runs, the exit code is what Python makes of the exception. Our frame is taken out of a traceback that is shown.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_NAME = "_penstock_zygote"
_OURS: list[Any] = []


def _without_us(shown_by: Callable[..., Any]) -> Callable[..., None]:
    """What shows an uncaught exception, without the frames of this folder on top."""

    def show(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
        sys.excepthook = shown_by
        while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == _HERE:
            trace = trace.tb_next
        sys.last_traceback = trace
        shown_by(kind, problem.with_traceback(trace), trace)

    return show


def _enter() -> list[Any]:
    """Serve; in a rank, what to call and with what. The zygote itself never returns from here."""
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(_HERE):
        del sys.path[0]
    spec = importlib.util.spec_from_file_location(
        _NAME, os.path.join(_HERE, "__init__.py"), submodule_search_locations=[_HERE]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = package
    spec.loader.exec_module(package)
    server = importlib.import_module(_NAME + ".server")
    detachment = importlib.import_module(_NAME + ".detachment")
    program = importlib.import_module(_NAME + ".program")
    late_variables = importlib.import_module(_NAME + ".late_variables")
    ours = [name for name in sys.modules if name.partition(".")[0] == _NAME]
    birth = server.serve(int(sys.argv[1]))
    detachment.settle(birth)
    # By their names: looking through all modules would copy the pages of all their names. They and what they know are kept, because
    # taking them apart would copy more.
    _OURS.extend([birth, *map(sys.modules.pop, ours)])
    begun = [program.begin(birth)]
    late_variables.arm(birth)
    return begun


if __name__ == "__main__":
    try:
        _todo = _enter()
        # Taken out of the list, so that nothing of the program is held by us when it ends.
        _todo[0].pop(0)(*_todo.pop())
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook = _without_us(sys.excepthook)
        raise
