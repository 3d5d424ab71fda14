"""How commands speak: data on stdout, words on stderr, JSON when asked for."""

import json
import select
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from penstock.cli.escape import harmless, said, unsteering

if TYPE_CHECKING:
    from cyclopts import App, Parameter

    #: The option that every command has.
    Json = Annotated[bool, Parameter(name="--json", negative=(), help="Machine-readable output on stdout.")]


def __getattr__(name: str) -> object:
    """The option is made when a command asks for it: what is printed without the command-line library does not wait for that."""
    if name != "Json":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cyclopts import Parameter

    return Annotated[bool, Parameter(name="--json", negative=(), help="Machine-readable output on stdout.")]


def command_app(name: str, purpose: str, *, examples: str) -> "App":
    """An app whose help shows a purpose and examples."""
    from cyclopts import App

    return App(
        name=name,
        help=purpose,
        help_format="plaintext",
        help_epilogue=f"examples:\n{examples}",
        version_flags=(),
        result_action="return_value",
    )


def check_reader() -> None:
    """End as with a broken pipe where nobody reads our output any more. Who follows may have nothing to write for hours, and so would not
    notice that `head` has left.
    """
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0)):
        raise BrokenPipeError


def print_json(document: Any) -> None:
    """One JSON document on one line; in plain ASCII where the stream cannot take more."""
    print(unsteering(json.dumps(document, ensure_ascii=not _is_unicode(), separators=(", ", ": "))))


#: Signs of our own, for streams that cannot take them.
_SIMPLER = str.maketrans("·×…▸─", "-x~>-")


def in_encoding(words: str, encoding: str | None = None) -> str:
    """Words that stdout can take, letter for letter, so that what stands below each other stays there."""
    encoding = encoding or sys.stdout.encoding or "ascii"
    try:
        words.encode(encoding)
    except UnicodeEncodeError:
        return words.translate(_SIMPLER).encode(encoding, "replace").decode(encoding)
    return words


def _is_unicode() -> bool:
    return (sys.stdout.encoding or "").replace("-", "").lower() == "utf8"


def print_text(words: str = "") -> None:
    """Lines for a person who asked for them, on stdout. Programs had a part in most: nothing of it steers the terminal."""
    print(said(words))


def say(words: str) -> None:
    """Something for the person, not for the pipe."""
    print(harmless(words), file=sys.stderr)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """A table that fits its content on a terminal and stays whole lines in a pipe."""
    heads = [harmless(column) for column in columns]
    cells = [[harmless(str(cell)) for cell in row] for row in rows]
    is_right = [column in right for column in columns]
    if sys.stdout.isatty():
        _print_folded(heads, cells, is_right)
    else:
        _print_whole(heads, cells, is_right)


def _print_folded(heads: list[str], cells: list[list[str]], is_right: list[bool]) -> None:
    """With cells that fold where the terminal ends."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head, at_right in zip(heads, is_right, strict=True):
        table.add_column(head, justify="right" if at_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def _print_whole(heads: list[str], cells: list[list[str]], is_right: list[bool]) -> None:
    """With every row on one line, however long, because programs read it. Looks the same, and costs a tenth."""
    from rich.cells import cell_len

    rows = [[cell.replace("\n", "\\n") for cell in row] for row in [heads, *cells]]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]

    def line(row: list[str]) -> str:
        padded = (
            " " * (width - cell_len(cell)) + cell if at_right else cell + " " * (width - cell_len(cell))
            for cell, width, at_right in zip(row, widths, is_right, strict=True)
        )
        return "   ".join(padded)

    rule = "─" if _is_unicode() else "-"
    print(line(rows[0]), rule * (sum(widths) + 3 * (len(widths) - 1)), *map(line, rows[1:]), sep="\n")


def print_facts(facts: dict[str, object]) -> None:
    """Names and values below each other; what is empty is left out."""
    shown = {name: str(value) for name, value in facts.items() if value != ""}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        print(f"{name:<{width}}  {harmless(value)}")
