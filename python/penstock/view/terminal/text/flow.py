"""Tokens laid out as lines of a fixed width, without any screen.

Tokens flow one after another; one that does not fit begins the next line, and one that is longer than a line goes on over several,
so nothing is cut. Two sides that shall stay beside each other are laid out with the larger width of each pair.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from penstock.view.terminal.text.styled_line import cell_text, wrapped

#: A token of no bytes is still a token.
NOTHING = "∅"


class Placed(NamedTuple):
    """A token, or a part of one, or a mark before one, on a line."""

    token: int
    x: int
    width: int
    text: str
    mark: bool = False


def flow(
    texts: Sequence[str],
    width: int,
    *,
    first: int = 0,
    marks: Mapping[int, str] | None = None,
    beside: Sequence[str] | None = None,
    breaks: bool = False,
) -> list[list[Placed]]:
    """Lines of tokens. ``first`` is the number of the first one, ``marks`` says what is written before which.

    With ``breaks``, a line ends where the text has a line feed, and what has no text has no place.
    """
    written = marks or {}
    lines: list[list[Placed]] = [[]]
    x = 0
    for at, text in enumerate(texts):
        token = first + at
        if breaks and not text:
            continue
        shown = cell_text(text) or NOTHING
        size = cell_len(shown)
        room = size if beside is None else max(size, cell_len(cell_text(beside[at]) or NOTHING))
        mark = written.get(token, "")
        if x and x + cell_len(mark) + room > width:
            lines.append([])
            x = 0
        if mark:
            mark = mark[: max(1, width - 1)]
            lines[-1].append(Placed(token, x, cell_len(mark), mark, mark=True))
            x += cell_len(mark)
        if x + room <= width:
            lines[-1].append(Placed(token, x, size, shown))
            x = width if breaks and "\n" in text else x + room
            continue
        x = _over_lines(lines, token, shown, width)
        if beside is not None:
            # Both sides take as many lines, and go on below.
            other = len(wrapped(beside[at], width)) - len(wrapped(shown, width))
            lines += [[] for _ in range(other)]
            x = width
    return lines


def _over_lines(lines: list[list[Placed]], token: int, text: str, width: int) -> int:
    """Put a token that is longer than a line on several; where the last one ends."""
    if lines[-1]:
        lines.append([])
    parts = [Placed(token, 0, cell_len(part), part) for part in wrapped(text, width)]
    lines[-1].append(parts[0])
    lines += [[part] for part in parts[1:]]
    return parts[-1].width


def line_of(lines: Sequence[Sequence[Placed]], token: int) -> int:
    """The first line that has a token."""
    return next((at for at, line in enumerate(lines) if any(placed.token == token for placed in line)), 0)


def nearest(line: Sequence[Placed], x: int) -> int | None:
    """The token of a line at a cell, or the nearest to it."""
    if not line:
        return None
    return min(line, key=lambda placed: max(placed.x - x, x - (placed.x + placed.width - 1), 0)).token
