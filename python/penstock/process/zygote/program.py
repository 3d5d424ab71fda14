"""The user's program as ``__main__``: what the interpreter does after it has read its command line.

A script's text is compiled and run in a fresh module, as `python script.py` does; a module by the same function of ``runpy`` that `python -m`
calls. So ``__file__``, ``__spec__``, ``sys.argv`` and ``sys.path[0]`` are what they always are, and ``multiprocessing`` can start
further processes from them.
"""

from __future__ import annotations

import builtins
import os
import runpy
import sys
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import ModuleType
from typing import Any

from .birth import Birth

NO_SUCH_FILE = 2


def first_folder(argv: list[str], *, module: bool, directory: str) -> str | None:
    """What ``sys.path`` begins with; nothing where the interpreter was told to leave that out."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return None
    if module:
        return os.path.realpath(directory)
    if argv[0] == "-c":
        return ""
    return os.path.dirname(os.path.realpath(os.path.join(directory, argv[0])))


def begin(birth: Birth) -> list[Any]:
    """A function and what to call it with, to run the program."""
    request = birth.request
    argv: list[str] = request["argv"]
    folder = first_folder(argv, module=request["module"], directory=request["directory"])
    if folder is not None:
        sys.path.insert(0, folder)
    main = ModuleType("__main__")
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    main.__dict__["__builtins__"] = builtins
    main.__loader__ = BuiltinImporter
    sys.modules["__main__"] = main
    if request["module"]:
        sys.argv = ["-m", *argv[1:]]
        return [runpy._run_module_as_main, argv[0]]  # type: ignore[attr-defined]
    if argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        return [exec, compile(argv[1], "<string>", "exec", dont_inherit=True), main.__dict__]
    sys.argv = list(argv)
    return [exec, _script(main, argv[0]), main.__dict__]


def _script(main: ModuleType, path: str) -> Any:
    whole = os.path.join(os.getcwd(), path)
    try:
        with open(whole, "rb") as file:
            text = file.read()
    except OSError as problem:
        shown = f"{sys.executable}: can't open file {whole!r}: [Errno {problem.errno}] {problem.strerror}"
        sys.stderr.write(shown + "\n")
        raise SystemExit(NO_SUCH_FILE) from None
    main.__file__ = whole
    main.__dict__["__cached__"] = None
    main.__loader__ = SourceFileLoader("__main__", whole)
    return compile(text, whole, "exec", dont_inherit=True)
