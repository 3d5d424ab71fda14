"""Rules about the code itself, as functions from a tree to complaints, so that the rules can be tested too."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

LINES_MAX = 500
#: One compiled module has one stub, which stubtest compares with it; it is a table of contents, looked up and not read.
STUB_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 7
#: Modules of a folder, beside ``__init__`` and ``__main__``: more is a hall in which nobody finds a door.
MODULES_MAX = 15
#: Floors that are not cut into rooms yet. A floor leaves this list and never comes back.
UNFURNISHED = ()
FOLDERS = ("python", "crates", "web/src", "web/test", "tests", "workshop", "benchmarks", "examples")
#: How a file begins that a program writes and a test compares; nobody reads it from top to bottom.
GENERATED = "// Generated from "
SUFFIXES = (".py", ".pyi", ".rs", ".ts", ".tsx", ".css")
SKIPPED = {"node_modules", "static", "__pycache__", "target"}

_VAGUE_FILE = re.compile(r"^(utils?|common|helpers?|misc|managers?|handlers?)$", re.IGNORECASE)
#: A door says what is behind it: a noun. What only says that something is or was done makes people open the file.
_PARTICIPLE = re.compile(
    r"^(\w*ing|asked|given|made|mapped|offered|opened|planned|shown|stored|told|turned|written)$"
)
#: Nouns that end like participles.
_NOUNS = {"finding", "meeting", "recording", "rendering", "timing", "training"}
_VAGUE_CLASS = re.compile(r"(Manager|Helper|Utils?|Handler)$")
_MACHINE_PATH = re.compile(r"(?<![\w.$}/])/(home|root|work|farm|Users)/\w")
_LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
_PAGE_CONSTANT = re.compile(r"^(?:export )?const [A-Z][A-Z_]+\b")
_RUST_FUNCTION = re.compile(r"^(\s*)(?:pub(?:\([a-z]+\))? )?(?:const |async |unsafe )*fn (\w+)")


def sources(tree: Path) -> Iterator[Path]:
    """Every source file that is ours."""
    for folder in FOLDERS:
        for path in sorted((tree / folder).rglob("*")):
            if path.suffix in SUFFIXES and not SKIPPED & set(path.relative_to(tree).parts):
                yield path


def complaints(tree: Path) -> list[str]:
    """Everything that breaks a rule, as ``file:line: what``."""
    lines = []
    for path in sources(tree):
        text = path.read_text()
        name = path.relative_to(tree)
        lines += [f"{name}:{line}: {what}" for line, what in _of_file(path, text)]
        if path.suffix == ".py":
            lines += [f"{name}:{line}: {what}" for line, what in _of_python(path, ast.parse(text), text)]
        if path.suffix == ".rs":
            lines += [f"{name}:{line}: {what}" for line, what in _of_rust(text)]
        if path.is_relative_to(tree / "web/src") and path.suffix in (".ts", ".tsx"):
            lines += [f"{name}:{line}: {what}" for line, what in _of_pages(text)]
    return [*lines, *_of_rooms(tree / "python/penstock", tree)]


def _of_rooms(package: Path, tree: Path) -> Iterator[str]:
    """Folders that are halls, and doors that say nothing."""
    modules = [path for path in sorted(package.rglob("*.py")) if not path.stem.startswith("__")]
    furnished = [path for path in modules if path.relative_to(package).parts[0] not in UNFURNISHED]
    for folder, count in Counter(path.parent for path in furnished).items():
        if count > MODULES_MAX:
            yield f"{folder.relative_to(tree)}: {count} modules, at most {MODULES_MAX}: cut it into rooms"
    for path in furnished:
        if _PARTICIPLE.match(path.stem) and path.stem not in _NOUNS:
            yield f"{path.relative_to(tree)}: {path.stem!r} says what is done, not what lives there: a noun"


def _of_file(path: Path, text: str) -> Iterator[tuple[int, str]]:
    lines = text.splitlines()
    limit = STUB_LINES_MAX if path.suffix == ".pyi" else LINES_MAX
    generated = text.startswith(GENERATED)
    if len(lines) > limit and not generated:
        yield limit, f"{len(lines)} lines, at most {limit} are readable: split it by concept"
    if _VAGUE_FILE.match(path.stem):
        yield 1, f"a file called {path.stem!r} has no concept: name what lives in it"
    for number, line in enumerate(lines, start=1):
        if _MACHINE_PATH.search(line):
            yield number, "a path of one particular machine"
        if _LEFTOVER.search(line) and path.name != "rules.py":
            yield number, "something left to do without the number of an issue, as in TODO(#12)"


def _of_python(path: Path, module: ast.Module, text: str) -> Iterator[tuple[int, str]]:
    if text.strip() and ast.get_docstring(module) is None:
        yield 1, "the file does not say what lives in it (module docstring)"
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and _VAGUE_CLASS.search(node.name):
            yield node.lineno, f"class {node.name} has a vague name"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of_function(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep" and "tests" in path.parts:
            yield node.lineno, "a test that sleeps: wait for the condition instead"


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    length = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
    if length > FUNCTION_LINES_MAX:
        yield node.lineno, f"{node.name} has {length} lines, at most {FUNCTION_LINES_MAX} are readable"
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    count = sum(argument.arg not in ("self", "cls") for argument in arguments)
    if count > PARAMETERS_MAX:
        yield (
            node.lineno,
            f"{node.name} has {count} parameters, at most {PARAMETERS_MAX}: group what belongs together",
        )


def _of_pages(text: str) -> Iterator[tuple[int, str]]:
    """Constants of a page's module, one or some in a row, say above them what they are for."""
    documented = False
    for number, line in enumerate(text.splitlines(), start=1):
        if _PAGE_CONSTANT.match(line):
            if not documented:
                yield number, "a constant without a line above it that says what it is for, as /** … */"
        else:
            documented = line.endswith("*/")


def _of_rust(text: str) -> Iterator[tuple[int, str]]:
    lines = text.splitlines()
    if not text.startswith("//!"):
        yield 1, "the file does not say what lives in it (//! header)"
    for number, line in enumerate(lines):
        if (match := _RUST_FUNCTION.match(line)) is None or line.rstrip().endswith(";"):
            continue
        # rustfmt puts the closing brace of a function at the function's own indentation.
        closing = f"{match[1]}}}"
        end = next((at for at in range(number + 1, len(lines)) if lines[at] == closing), number)
        if end - number - 1 > FUNCTION_LINES_MAX:
            yield (
                number + 1,
                f"{match[2]} has {end - number - 1} lines, at most {FUNCTION_LINES_MAX} are readable",
            )
