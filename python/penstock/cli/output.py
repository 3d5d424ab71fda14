"""How commands speak: data on stdout, words on stderr, JSON when asked for."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter

from penstock.cli.escape import harmless

#: The option that every command has.
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Machine-readable output on stdout.")]


def command_app(name: str, purpose: str, *, examples: str) -> App:
    """An app whose help shows a purpose and examples."""
    return App(
        name=name,
        help=purpose,
        help_format="plaintext",
        help_epilogue=f"examples:\n{examples}",
        version_flags=(),
        result_action="return_value",
    )


def print_json(document: Any) -> None:
    """One JSON document on one line; in plain ASCII where the stream cannot take more."""
    whole = (sys.stdout.encoding or "").replace("-", "").lower() == "utf8"
    print(json.dumps(document, ensure_ascii=not whole, separators=(", ", ": ")))


def say(words: str) -> None:
    """Something for the person, not for the pipe."""
    print(harmless(words), file=sys.stderr)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """A table that fits its content on a terminal and stays whole lines in a pipe."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(harmless(column), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(str(cell))) for cell in row))
    # Folding in a pipe would cut lines that programs read; a very wide console never folds.
    width = None if sys.stdout.isatty() else 4096
    Console(width=width).print(table)


def print_facts(facts: dict[str, object]) -> None:
    """Names and values below each other; what is empty is left out."""
    shown = {name: str(value) for name, value in facts.items() if value != ""}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        print(f"{name:<{width}}  {harmless(value)}")


def duration(nanoseconds: float) -> str:
    """A time span with a unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def size(count: float) -> str:
    """A number of bytes with a unit that suits it."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
