"""Which code is the program's own, and what its running functions have in their variables.

A library's variables are its own affair: what is looked at is code that lies neither in the installation of Python nor in Penstock.
"""

import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import lru_cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_OF_OTHERS = tuple(
    {str(Path(path).resolve()) for path in sysconfig.get_paths().values() if path}
    | {str(Path(__file__).resolve().parents[2]), str(Path(sys.prefix).resolve() / "bin")}
)
#: Folders of libraries wherever they lie: an environment over another one, a folder on PYTHONPATH.
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
#: Functions that called each other.
_FRAMES_MAX = 100
#: Of functions inside of a function.
_NESTED_MAX = 4


@lru_cache(maxsize=4096)
def is_own_file(file: str) -> bool:
    """Whether a file of code is the program's."""
    if file.startswith("<frozen"):
        return False
    path = Path(file).resolve()
    return not str(path).startswith(_OF_OTHERS) and _LIBRARIES.isdisjoint(path.parts)


def is_own_code(code: CodeType) -> bool:
    """Whether a function is the program's."""
    return is_own_file(code.co_filename)


def is_own_class(kind: type) -> bool:
    """Whether a class is the program's."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    return kind.__module__ == "__main__" if file is None else is_own_file(file)


def frames() -> Iterator[tuple[tuple[int, CodeType], FrameType]]:
    """Running functions of the program in this thread, the outermost first, each with what tells it from others: nobody has to hold it for that."""
    stack: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(stack) < _FRAMES_MAX:
        stack.append(frame)
        frame = frame.f_back
    for depth, frame in enumerate(reversed(stack)):
        if is_own_code(frame.f_code):
            yield (depth, frame.f_code), frame


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables of a running function, and the globals that it uses."""
    if not frame.f_code.co_flags & CO_OPTIMIZED:
        return {key: value for key, value in frame.f_locals.items() if not key.startswith("__")}
    local = frame.f_locals
    variables = {**globals_of(frame.f_code, frame.f_globals), **local}
    if type(local) is dict:
        # Before Python 3.13 this is a copy that stays with the frame, and would keep a step's tensors alive.
        local.clear()
    return variables


def globals_of(code: CodeType, known: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a function names, functions inside of it included."""
    return {name: known[name] for name in sorted(_names(code, 0)) if name in known}


@lru_cache(maxsize=4096)
def _names(code: CodeType, depth: int) -> frozenset[str]:
    inside = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    if depth >= _NESTED_MAX:
        return frozenset(code.co_names)
    return frozenset(code.co_names).union(*(_names(nested, depth + 1) for nested in inside))
