"""Rules about names: one name one thing in a floor, words that say something, options that an editor completes."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

#: Folders whose files implement one protocol each time: a file is called like its command, whatever the first word was.
_ONE_PROTOCOL = ("cli/data", "cli/checkpoint", "cli/runs")
#: Names of variables that do not say what they hold, and how often they may still be bound. The number falls and never rises.
VAGUE = frozenset({"each", "found", "given", "made", "told"})
VAGUE_MAX = 10
#: An invariant of ARCHITECTURE.md.
_INVARIANT = re.compile(r"\b[DSPRIOVH]\d+\b")
#: Where keywords are whatever somebody else's class takes.
_OPEN_KEYWORDS = {"errors/root.py"}


def complaints(tree: Path) -> list[str]:
    """Everything that breaks a rule about names, as ``file:line: what``."""
    package = tree / "python/penstock"
    modules = {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    return [
        *_doubles(package, modules),
        *_open_keywords(package, modules),
        *_vague(modules),
        *_homeless_tests(tree, modules),
    ]


def _homeless_tests(tree: Path, modules: dict[Path, ast.Module]) -> Iterator[str]:
    """Tests that nobody finds: called like nothing that exists, and of no invariant."""
    known = {name for path in modules for name in (path.stem, path.parent.name)}
    for module in modules.values():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                known.add(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.name.lstrip("_")).lower())
    for pattern in (
        "crates/*/src/**/*.rs",
        "docs/**/*.md",
        "examples/**/*.py",
        "workshop/*.py",
        "tests/**/*.py",
        "benchmarks/*.py",
    ):
        paths = (path for path in tree.glob(pattern) if not path.name.startswith("test_"))
        known |= {
            name.replace("-", "_").removeprefix("bench_")
            for path in paths
            for name in (path.stem, path.parent.name)
        }
    for path in sorted(tree.glob("tests/**/test_*.py")):
        called = path.stem.removeprefix("test_")
        words = {called, called.split("_")[0]}
        words |= {
            form
            for word in words
            for form in (word + "s", word.removesuffix("s"), word.removesuffix("ies") + "y")
        }
        if path.parent.name == "tidy":
            continue
        if not words & known and not _INVARIANT.search(path.read_text()):
            yield f"{path.relative_to(tree)}: called like nothing that exists, and cites no invariant: who will find it?"


def vague_count(modules: dict[Path, ast.Module]) -> int:
    """How often variables and parameters are bound to names that say nothing."""
    count: Counter[str] = Counter()
    for module in modules.values():
        for node in ast.walk(module):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                count[node.id] += 1
            elif isinstance(node, ast.arg):
                count[node.arg] += 1
    return sum(count[name] for name in VAGUE)


def _vague(modules: dict[Path, ast.Module]) -> Iterator[str]:
    if (count := vague_count(modules)) > VAGUE_MAX:
        names = ", ".join(sorted(VAGUE))
        yield f"python/penstock: {count} variables are called {names}, at most {VAGUE_MAX}: name what they hold"


def _doubles(package: Path, modules: dict[Path, ast.Module]) -> Iterator[str]:
    """Files and types of a floor that are called like others of it."""
    files: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    types: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for path, module in modules.items():
        name = path.relative_to(package)
        if len(name.parts) < 2:
            continue
        if not path.stem.startswith("__") and not name.parent.as_posix().startswith(_ONE_PROTOCOL):
            files[name.parts[0], path.stem].append(name.as_posix())
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                types[name.parts[0], node.name].append(name.as_posix())
    for kind, doubled in (("file", files), ("type", types)):
        for (floor, called), places in doubled.items():
            if len(places) > 1:
                yield f"{' and '.join(places)}: two of floor {floor} have a {kind} called {called}"


def _open_keywords(package: Path, modules: dict[Path, ast.Module]) -> Iterator[str]:
    """Options that no editor completes, and tuples that stand for a type."""
    for path, module in modules.items():
        name = path.relative_to(package).as_posix()
        for node in ast.walk(module):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            rest = node.args.kwarg
            is_open = rest is not None and ast.unparse(rest.annotation or ast.Constant(0)) == "Any"
            if is_open and name not in _OPEN_KEYWORDS:
                yield f"{name}:{node.lineno}: **keywords: Any hide what may be given: Unpack a TypedDict, or spell it out"
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                if argument.arg == "about" and ast.unparse(argument.annotation or ast.Constant(0)).startswith(
                    "tuple"
                ):
                    yield f"{name}:{node.lineno}: a tuple called about is a type without a name"
