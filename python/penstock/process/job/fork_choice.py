"""Whether the ranks of a command can be forked from a warm Python, from which, and with what imported.

Decided before anything runs, from the command and the text of its script alone: no user code is imported, here or in the zygote.
What the zygote itself finds wrong later (a thread, an open device) it says, and ranks are executed then too.
"""

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import UsageError

MODES = ("auto", "always", "never")
ENTRY = Path(__file__).parent.parent / "zygote" / "__main__.py"
#: With torch alone, the first step pays for the rest: 3.6 s instead of 0.24 s, measured.
TORCH = ("torch", "torch._dynamo", "torch.distributed")
#: Who says one of these will import torch.
USERS_OF_TORCH = re.compile(
    rb"\b(torch|lightning|pytorch_lightning|transformers|accelerate|deepspeed|diffusers|trl|peft|torchtitan)\b"
)
#: Of ourselves, for programs that use us: importing it in every rank costs as much as the rest of a restart.
PENSTOCK = ("penstock.run",)
PENSTOCK_WITH_TORCH = ("penstock.torch",)
USERS_OF_PENSTOCK = re.compile(rb"^[ \t]*(?:from|import)[ \t]+penstock\b", re.MULTILINE)
#: Set by a program for what it imports next. In a fork that would be too late.
SETS_EARLY = re.compile(
    rb"""(?:environ\[\s*["'](?P<set>NAME)["']\s*\]\s*=(?!=)|environ\.setdefault\(\s*["'](?P<default>NAME)["'])""".replace(
        b"NAME", rb"(?:OMP|MKL|KMP|GOMP|OPENBLAS|TORCH|TORCHDYNAMO|TORCHINDUCTOR|PYTORCH)_\w+"
    )
)
#: How much of the user's text is looked through for them.
FILES_MAX = 200
FILE_BYTES_MAX = 1 << 20

_INTERPRETER = re.compile(r"python(\d+(\.\d+)?)?t?d?")
_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_][\w., \t]*)", re.MULTILINE)
#: Options without an argument that a zygote can have as well; `-u` and the like change what all of it does, its forks included.
_PLAIN = frozenset("bBdEIOPqRsSuv")
#: What has to be there from the first line of a process on.
_FROM_THE_START = {"COVERAGE_PROCESS_START": "measures a process from its start"}


@dataclass(frozen=True)
class Warmth:
    """The fields ``zygote`` and ``zygote_why`` of a role in ``job.json``."""

    zygote: dict[str, Any] | None
    why: str


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a command is run with."""

    directory: Path = field(default_factory=Path.cwd)
    #: Beside the variables of this process.
    environment: Mapping[str, str] = field(default_factory=dict)
    ranks: int = 1
    #: Whether anything may be started a second time.
    restarts: bool = False

    def variable(self, name: str) -> str | None:
        """What the command would find."""
        return self.environment.get(name, os.environ.get(name))


@dataclass(frozen=True)
class _Python:
    """A command line of Python, taken apart."""

    interpreter: str
    flags: list[str]
    #: Script, module or `-c` and its text, and the arguments.
    argv: list[str]
    module: bool


class _ExecutedError(Exception):
    """Why a command has to be executed."""


def warmth(
    command: Sequence[str], around: Surroundings, *, mode: str = "auto", preload: Sequence[str] = ()
) -> Warmth:
    """What to fork the ranks of a command from; with ``always``, an error when that is impossible."""
    if mode not in MODES:
        raise UsageError(f"--zygote must be one of {', '.join(MODES)}, got {mode}")
    if mode == "never":
        return Warmth(None, "executed, as asked for")
    if mode == "auto" and around.ranks == 1 and not around.restarts:
        return Warmth(None, "executed: one rank that is started once gains nothing from a warm Python")
    try:
        python = _taken_apart(list(command), around)
        for name, why in _FROM_THE_START.items():
            if around.variable(name) is not None:
                raise _ExecutedError(f"{name} {why}")
        seen = _looked_through(python, around)
        names = list(preload) or seen.preload()
        if names and seen.sets_early is not None:
            raise _ExecutedError(f"{seen.sets_early}, which is read when something is imported")
    except _ExecutedError as problem:
        if mode == "always":
            raise UsageError(
                f"--zygote always: {problem}", hint="--zygote auto executes such commands"
            ) from problem
        return Warmth(None, f"executed: {problem}")
    return Warmth(
        {
            "interpreter": python.interpreter,
            "flags": python.flags,
            "entry": str(ENTRY),
            "preload": names,
            "argv": python.argv,
            "module": python.module,
        },
        f"forked from a warm Python with {', '.join(names)}" if names else "forked from a warm Python",
    )


def _taken_apart(command: list[str], around: Surroundings) -> _Python:
    executable = shutil.which(command[0], path=around.variable("PATH"))
    if executable is None:
        raise _ExecutedError(f"there is no program {command[0]}")
    program = os.path.abspath(os.path.join(around.directory, executable))
    if not _INTERPRETER.fullmatch(Path(program).name):
        program, first = _of_its_first_line(program, around)
        command = [command[0], *first, *command[1:]]
    flags: list[str] = []
    words = command[1:]
    while words:
        word = words.pop(0)
        if word in ("-m", "-c") and words:
            return _Python(program, flags, [*(["-c"] if word == "-c" else []), *words], module=word == "-m")
        if word in ("-W", "-X") and words:
            flags += [word, words.pop(0)]
        elif word.startswith(("-W", "-X")) or (word[0] == "-" and word[1:] and set(word[1:]) <= _PLAIN):
            flags.append(word)
        elif word.startswith("-"):
            raise _ExecutedError(f"Python's option {word}")
        else:
            _check_script(around.directory / word)
            return _Python(program, flags, [word, *words], module=False)
    raise _ExecutedError("Python without a script")


def _of_its_first_line(program: str, around: Surroundings) -> tuple[str, list[str]]:
    """Interpreter, options and script of an executable script: its first line says them."""
    try:
        with open(program, "rb") as file:
            line = file.readline(512)
    except OSError:
        line = b""
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [shutil.which(word, path=around.variable("PATH")) or word for word in words[1:2]] + words[2:]
    if not words or not _INTERPRETER.fullmatch(Path(words[0]).name):
        raise _ExecutedError(f"{Path(program).name} is not Python")
    # The system passes what follows the interpreter as one word.
    options = [" ".join(words[1:])] if words[1:] else []
    return words[0], [*options, program]


def _check_script(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as problem:
        raise _ExecutedError(f"{path.name} cannot be read: {problem.strerror}") from problem
    if start.startswith(b"PK") or path.suffix == ".pyc":
        raise _ExecutedError(f"{path.name} is not text")


@dataclass
class _Seen:
    """What the text of a program says."""

    mentions_torch: bool = False
    imports_penstock: bool = False
    #: Which file sets what.
    sets_early: str | None = None

    def preload(self) -> list[str]:
        """What to import beforehand."""
        names = list(TORCH) if self.mentions_torch else []
        if self.imports_penstock:
            names += [*PENSTOCK, *(PENSTOCK_WITH_TORCH if self.mentions_torch else ())]
        return names

    def read(self, text: bytes, name: str) -> None:
        self.mentions_torch = self.mentions_torch or USERS_OF_TORCH.search(text) is not None
        self.imports_penstock = self.imports_penstock or USERS_OF_PENSTOCK.search(text) is not None
        if self.sets_early is None and (match := SETS_EARLY.search(text)) is not None:
            variable = match["set"] or match["default"]
            self.sets_early = f"{name} sets {variable.decode()}"


def _looked_through(python: _Python, around: Surroundings) -> _Seen:
    if python.argv[0] == "-c":
        seen = _Seen()
        seen.read(os.fsencode(python.argv[1]), "the command")
        return seen
    if not python.module:
        script = around.directory / python.argv[0]
        return _read_all([script], script.resolve().parent)
    name = python.argv[0].partition(".")[0]
    if name in sys.stdlib_module_names:
        return _Seen()
    starts = list(_of_module(name, around.directory)) or _installed(python.argv[0], python.interpreter)
    # Where a module is that another interpreter finds is not known here; most that are run so train something.
    return _read_all(starts, around.directory) if starts else _Seen(mentions_torch=True)


def _installed(module: str, interpreter: str) -> list[Path]:
    """The files of a module of our own interpreter, and of the packages that it is in. Found without importing it."""
    if interpreter != sys.executable:
        return []
    name, *rest = module.split(".")
    spec = importlib.util.find_spec(name)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec is not None else []
    files = [folder.joinpath(*rest) for folder in folders]
    last = [
        path
        for file in files
        for path in (file.with_suffix(".py"), file / "__main__.py", file / "__init__.py")
    ]
    # Packages around it are imported before it.
    around = [
        folder.joinpath(*rest[:depth], "__init__.py") for folder in folders for depth in range(len(rest))
    ]
    return [path for path in last + around if path.is_file()]


def _read_all(starts: Sequence[Path], folder: Path) -> _Seen:
    """What the files say, and what they import from the folder. Looks at so many files and no more."""
    seen = _Seen()
    done: set[Path] = set()
    waiting = list(reversed(starts))
    while waiting and len(done) < FILES_MAX:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        try:
            with path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX)
        except OSError:
            continue
        seen.read(text, path.name)
        for names in _IMPORT.findall(text):
            for name in names.decode("ascii", "ignore").replace(" import ", ",").split(","):
                waiting += _of_module(name.split(".")[0].split()[0] if name.strip() else "", folder)
    return seen


def _of_module(name: str, folder: Path) -> Iterator[Path]:
    """The files of a module that lies in a folder; of a package, all of them."""
    if not name.isidentifier():
        return
    if (single := folder / f"{name}.py").is_file():
        yield single
    if (folder / name).is_dir():
        yield from sorted((folder / name).rglob("*.py"))[:FILES_MAX]
