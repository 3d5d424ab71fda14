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
import warnings
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from .birth import Birth, Compiled

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
        return [exec, _code(argv[1], "<string>", birth.warm.compiled), main.__dict__]
    sys.argv = list(argv)
    return [exec, _script(main, argv[0], birth.warm.compiled), main.__dict__]


def compiled(request: dict[str, Any], last: Compiled | None) -> Compiled | None:
    """In the zygote: the program of a request, compiled once for all ranks. Where that fails or warns, each rank says so itself."""
    argv: list[str] = request["argv"]
    if request["module"]:
        return None
    try:
        text: bytes | str
        if argv[0] == "-c":
            text, name = argv[1], "<string>"
        else:
            name = os.path.join(os.path.realpath(request["directory"]), argv[0])
            with open(name, "rb") as file:
                text = file.read()
        if last is not None and (last.text, last.name) == (text, name):
            return last
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return Compiled(text, name, _code(text, name, None))
    except (OSError, SyntaxError, ValueError, Warning, MemoryError, RecursionError):
        return None


def _code(text: bytes | str, name: str, known: Compiled | None) -> CodeType:
    if known is not None and (known.text, known.name) == (text, name):
        return known.code
    return compile(text, name, "exec", dont_inherit=True)


def _script(main: ModuleType, path: str, known: Compiled | None) -> CodeType:
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
    return _code(text, whole, known)
