"""Expressions of filters: a small, safe language over the fields of a row and its measured columns.

Comparisons, ``and``, ``or``, ``not``, ``in``, arithmetic, constants, names of fields, fields of fields (``meta.source``), and a few
functions (``len``, ``lower``, ``startswith``, ``endswith``, ``contains``, ``abs``, ``min``, ``max``). ``column('tokens')`` is the value of a
measured column; a plain name is one too where rows have no such field. It is Python's syntax, checked node by node before
anything is run; a dot looks a name up in a dict and reaches no attribute of Python, and there are no subscripts and no
calls of anything else. A missing field is None, and comparing None with an order is false, so a plain comparison never
fails on a row that lacks a field. Products and remainders are of numbers only, since those of strings can be as large as
memory.

An expression knows no schema. ``row_filter.py`` binds it to a version, which is where names are checked.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from penstock.errors import RecipeInvalid
from penstock.formats.contract import Row

_LENGTH_MAX = 10_000
#: How deep an expression may be nested; running it takes a few calls of Python for each level.
_DEPTH_MAX = 100
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": lambda value: 0 if value is None else len(value),
    "lower": lambda value: "" if value is None else str(value).lower(),
    "startswith": lambda value, prefix: value is not None and str(value).startswith(prefix),
    "endswith": lambda value, suffix: value is not None and str(value).endswith(suffix),
    "contains": lambda value, part: value is not None and part in value,
    "abs": abs,
    "min": min,
    "max": max,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, choices: value in choices,
    ast.NotIn: lambda value, choices: value not in choices,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def _of_numbers(work: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        if not (isinstance(a, int | float) and isinstance(b, int | float)):
            raise TypeError(
                f"{work.__name__} is of numbers, not of {type(a).__name__} and {type(b).__name__}"
            )
        return work(a, b)

    return run


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _of_numbers(operator.mul),
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _of_numbers(operator.mod),
}
#: Where a row that is judged has the values of measured columns; no field can be called this.
MEASURED: Any = ("measured",)
#: Name of a measured column, and the beginning of its key where the name alone does not tell.
ColumnReference = tuple[str, str]
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_Term = Callable[[Row], Any]


class Expression:
    """A checked expression; call it with a row."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LENGTH_MAX:
            raise self._refuse(f"it has {len(text)} characters, at most {_LENGTH_MAX} are read")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as reason:
            raise self._refuse(str(reason) or "it is nested too deeply") from reason
        if _deeper_than(self._tree, _DEPTH_MAX):
            raise self._refuse(f"it is nested more than {_DEPTH_MAX} deep")
        self._run  # noqa: B018 - checks every node now, not at the first row

    @property
    def canonical(self) -> str:
        """The same expression however it was spaced."""
        return ast.unparse(self._tree)

    def __call__(self, row: Row) -> bool:
        """Whether a row passes. Values of measured columns stand in it under ``MEASURED``, by reference."""
        return bool(self._run(row))

    @cached_property
    def fields(self) -> tuple[tuple[str, ...], ...]:
        """The fields that it names, each with the fields inside it: ``meta.source`` is ``("meta", "source")``."""
        paths: dict[tuple[str, ...], None] = {}
        inner: set[int] = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):
                inner.add(id(node.func))
            path = None if id(node) in inner else _path(node)
            if path is not None:
                paths[path] = None
                inner |= {id(part) for part in ast.walk(node)}
        return tuple(paths)

    @cached_property
    def columns(self) -> tuple[ColumnReference, ...]:
        """The measured columns that it names as such."""
        calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call)]
        references = [_column_reference(call) for call in calls]
        return tuple(dict.fromkeys(reference for reference in references if reference is not None))

    @cached_property
    def _run(self) -> _Term:
        return self._term(self._tree)

    def _term(self, node: ast.expr) -> _Term:
        match node:
            case ast.Constant(value=value) if value is None or isinstance(value, str | int | float | bool):
                return lambda row: value
            case ast.Name(id=name):
                return lambda row: row[name] if name in row else row.get(MEASURED, {}).get((name, ""))
            case ast.Attribute() if (path := _path(node)) is not None:
                return _inner_field(path)
            case ast.Call(func=ast.Name(id="column")):
                reference = _column_reference(node)
                if reference is None:
                    raise self._refuse("a column is named by one text, or by two: column('tokens')")
                return lambda row: row[MEASURED][reference]
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                terms = [self._term(part) for part in parts]
                return lambda row: [term(row) for term in terms]
            case ast.BoolOp(op=op, values=parts):
                terms = [self._term(part) for part in parts]
                return _joined(terms, until=isinstance(op, ast.Or))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._term(operand)
                return lambda row: not inner(row)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._term(operand)
                return lambda row: -inner(row)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                work, a, b = _ARITHMETIC[type(op)], self._term(left), self._term(right)
                return lambda row: work(a(row), b(row))
            case ast.Compare():
                return self._comparison(node)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
                function, terms = _FUNCTIONS[name], [self._term(argument) for argument in arguments]
                return lambda row: function(*(term(row) for term in terms))
        raise self._refuse(f"`{ast.unparse(node)}` is not part of the language")

    def _comparison(self, node: ast.Compare) -> _Term:
        for op, other in zip(node.ops, node.comparators, strict=True):
            # Whether equal strings or numbers are one object is up to the interpreter, and no row may depend on that.
            single = isinstance(other, ast.Constant) and (
                other.value is None or isinstance(other.value, bool)
            )
            if isinstance(op, ast.Is | ast.IsNot) and not single:
                raise self._refuse("`is` compares with None, True or False; use `==`")
        terms = [self._term(part) for part in (node.left, *node.comparators)]
        operators = [(_COMPARISONS[type(op)], isinstance(op, _ORDERED)) for op in node.ops]

        def run(row: Row) -> bool:
            values = [term(row) for term in terms]
            for (compare, ordered), a, b in zip(operators, values, values[1:], strict=False):
                if (ordered and (a is None or b is None)) or not compare(a, b):
                    return False
            return True

        return run

    def _refuse(self, reason: str) -> RecipeInvalid:
        hint = "for example: lang == 'en' and len(text) > 100 and meta.source != 'mirror'"
        return RecipeInvalid(field="filter", reason=f"{self.text!r:.200} cannot be read: {reason}", hint=hint)


def _path(node: ast.AST) -> tuple[str, ...] | None:
    """The names of ``a`` or of ``a.b.c``; names that Python keeps for itself are none, so that nobody reads them for what they are not."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if any(name.startswith("__") for name in names):
        return None
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else None


def _column_reference(call: ast.Call) -> ColumnReference | None:
    match call:
        case ast.Call(func=ast.Name(id="column"), args=arguments, keywords=[]) if 1 <= len(arguments) <= 2:
            texts = [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
            if len(texts) == len(arguments) and all(isinstance(text, str) and text for text in texts):
                return (str(texts[0]), str(texts[1]) if len(texts) > 1 else "")
    return None


def _inner_field(path: tuple[str, ...]) -> _Term:
    """A field of a field. A field whose own name has the dots in it wins, as those of WebDataset samples do."""
    # How many of the names are the field's own, the most first.
    splits = [(".".join(path[:at]), path[at:]) for at in range(len(path), 0, -1)]

    def run(row: Row) -> Any:
        for name, rest in splits:
            if name in row:
                return _inside(row[name], name, rest)
        return None

    return run


def _inside(value: Any, name: str, rest: tuple[str, ...]) -> Any:
    for inner in rest:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} is of type {type(value).__name__} and has no field {inner!r}")
        value, name = value.get(inner), f"{name}.{inner}"
    return value


def _joined(terms: list[_Term], *, until: bool) -> _Term:
    """The first value that is as true as ``until``, or the last, as Python's ``and`` and ``or`` are: ``(lang or 'en') == 'en'``."""

    def run(row: Row) -> Any:
        value = None
        for term in terms:
            value = term(row)
            if bool(value) is until:
                break
        return value

    return run


def _deeper_than(tree: ast.expr, depth: int) -> bool:
    """Whether an expression is nested deeper; looks level by level, so that no depth is too deep to look at."""
    level: list[ast.AST] = [tree]
    for _ in range(depth):
        level = [
            child for node in level for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        ]
    return bool(level)
