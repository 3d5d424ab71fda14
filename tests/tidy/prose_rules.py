"""Rules about what is written for people: lines of documents, and docstrings whose names lead somewhere."""

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from tests.tidy import rules

PAGE_LINE_MAX = 120
README_LINE_MAX = 100
#: Pages at the root, beside those of docs/.
ROOT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md")
#: Names of others that docstrings speak of.
FOREIGN = {"DatasetDict", "DistributedDataParallel", "ShapeDtypeStruct", "Tensor", "VmHWM", "VmRSS"}
#: A sentence that sends the reader away instead of saying what the thing is.
EVASION = "See the module's " + "description"

#: An error that judges instead of saying what is expected and what came.
_JUDGEMENT = re.compile(r"\bmakes? no sense\b|(?<!here )\b(?:is|are) no (?!longer|more)")

_FENCE = re.compile(r"^\s*(```|~~~)")
_QUOTED = re.compile(r"``([^`\n]+)``")
_MODULE = re.compile(r"^penstock(\.\w+)+$")
_FILE = re.compile(r"^[\w./-]+\.(py|pyi|rs|ts|tsx|md)$")
#: On a page, where many files are others': every Rust file is ours, and a Python file that is given from the root.
_PAGE_FILE = re.compile(
    r"`((?:[\w-]+/)*[\w-]+\.rs|(?:python|crates|tests|benchmarks|examples|workshop)/[\w./-]+\.\w+)`"
)
_TYPE = re.compile(r"^([A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)*)(?:\.(\w+))?(?:\(.*\))?$")
_RUST_TYPE = re.compile(r"^\s*(?:pub(?:\([a-z]+\))? )?(?:struct|enum|trait|type) (\w+)", re.MULTILINE)
_PYTHON_TYPE = re.compile(r"^(?:\s*class )?([A-Z]\w+)(?:[(:\[]|: TypeAlias = | = )", re.MULTILINE)
_WORD = re.compile(r"\w+")


def complaints(tree: Path) -> list[str]:
    """Everything that breaks a rule about prose, as ``file:line: what``."""
    sources = list(rules.sources(tree))
    return [
        *page_complaints(tree),
        *page_name_complaints(tree, sources),
        *docstring_complaints(tree, sources),
        *message_complaints(tree),
    ]


def page_complaints(tree: Path) -> Iterator[str]:
    """Lines that are too long to read, beside tables, code, and words that cannot be broken."""
    pages = [*(tree / "docs").rglob("*.md"), *(path for name in ROOT_PAGES if (path := tree / name).exists())]
    for page in sorted(pages):
        limit = README_LINE_MAX if page.name == "README.md" else PAGE_LINE_MAX
        is_code = False
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            is_code ^= _FENCE.match(line) is not None
            words = len(line.split())
            if len(line) > limit and words > 1 and not is_code and not line.lstrip().startswith(("|", "```")):
                yield f"{page.relative_to(tree)}:{number}: {len(line)} characters, at most {limit}: break the line"


def page_name_complaints(tree: Path, sources: list[Path]) -> Iterator[str]:
    """Files that pages speak of and that are not there."""
    names = Names(tree, sources)
    for page in sorted((tree / "docs").rglob("*.md")):
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            for name in _PAGE_FILE.findall(line):
                if not (tree / name).exists() and not names.resolves(name):
                    yield f"{page.relative_to(tree)}:{number}: `{name}` leads nowhere"


class Names:
    """What names in docstrings may lead to: files, modules, types and their attributes."""

    def __init__(self, tree: Path, sources: list[Path]) -> None:
        self._tree = tree
        self._sources = sources

    @cached_property
    def _files(self) -> list[str]:
        pages = (self._tree / "docs").rglob("*.md")
        return [f"/{path.relative_to(self._tree)}" for path in (*self._sources, *pages)]

    @cached_property
    def _types(self) -> set[str]:
        types = set(FOREIGN)
        for path in self._sources:
            text = path.read_text()
            if path.suffix == ".rs":
                types.update(_RUST_TYPE.findall(text))
            elif path.suffix in (".py", ".pyi"):
                types.update(_PYTHON_TYPE.findall(text))
        return types

    @cached_property
    def _words(self) -> set[str]:
        return {word for path in self._sources for word in _words_of(path)}

    def resolves(self, name: str) -> bool:
        """Whether a name that looks like one of ours is one; anything that does not look so is."""
        if _MODULE.match(name):
            return self._is_module(name)
        if _FILE.match(name):
            return any(path.endswith(f"/{name}") for path in self._files)
        if (parts := _TYPE.match(name)) is not None:
            return parts[1] in self._types and (
                parts[2] is None or parts[1] in FOREIGN or parts[2] in self._words
            )
        return True

    def _is_module(self, name: str) -> bool:
        """A module, a package, or something that a module of that path speaks of."""
        place = self._tree / "python"
        for part in name.split("."):
            if (place / part).is_dir():
                place /= part
            elif (place / f"{part}.py").exists():
                place /= f"{part}.py"
            else:
                module = place if place.suffix else place / "__init__.py"
                return module.exists() and part in _words_of(module)
        return True


def docstring_complaints(tree: Path, sources: list[Path]) -> Iterator[str]:
    """Docstrings that say nothing, and names in them that lead nowhere."""
    names = Names(tree, sources)
    for path in sources:
        where = path.relative_to(tree)
        text = path.read_text()
        for number, line in enumerate(text.splitlines(), start=1):
            if EVASION in line:
                yield f"{where}:{number}: say what it is instead of pointing at the module's description"
        if path.suffix == ".py" and "``" in text:
            for number, docstring in _docstrings(ast.parse(text)):
                for name in _QUOTED.findall(docstring):
                    if not names.resolves(name):
                        yield f"{where}:{number}: ``{name}`` leads nowhere"


def message_complaints(tree: Path) -> Iterator[str]:
    """Messages of errors that do not say what is expected."""
    package = tree / "python/penstock"
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        if not _JUDGEMENT.search(text):
            continue
        raised = [node.exc for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Raise) and node.exc]
        for node in (node for error in raised for node in ast.walk(error)):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and _JUDGEMENT.search(node.value)
            ):
                yield (
                    f"{path.relative_to(tree)}:{node.lineno}: {node.value.strip()!r}:"
                    " say what is expected and what came, as in 'deadline_s must be positive, got 0'"
                )


def _words_of(path: Path) -> list[str]:
    """All words of a file but those that docstrings quote, which would prove themselves."""
    return _WORD.findall(_QUOTED.sub("", path.read_text()))


def _docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring is not None:
                yield node.body[0].lineno, docstring
