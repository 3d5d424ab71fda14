"""Lines of a terminal as pieces of text with a style each, and the one way from a text to the terminal.

Data is never trusted: ``cell_text`` makes every character that would act on a terminal, or hide in it, a visible mark.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

PLAIN = Style.null()


class StyledText(NamedTuple):
    """Some text of a line."""

    text: str
    style: Style = PLAIN


Line = Sequence[StyledText]


def cell_text(text: str) -> str:
    """A text that can be sent to a terminal: what could act there is a mark."""
    if text.isprintable():
        return text
    # The view-model comes with numpy, which the first screen does not wait for.
    from penstock.view.model.tokens.glyphs import safe_line

    return safe_line(text)


def strip_of(line: Line, width: int) -> Strip:
    """A line of exactly so many cells. Neighbours of the same style travel as one, which is most of what a page costs over ssh."""
    segments: list[Segment] = []
    room = width
    for text, style in merged(line):
        size = cell_len(text)
        if size > room:
            text, size = set_cell_size(text, room), room
        if size:
            segments.append(Segment(text, style))
        room -= size
        if room == 0:
            break
    if room:
        segments.append(Segment(" " * room, PLAIN))
    return Strip(segments, width)


def merged(line: Iterable[StyledText]) -> list[StyledText]:
    """Pieces that may be sent, those of the same style put together."""
    pieces: list[StyledText] = []
    for text, style in line:
        safe = cell_text(text)
        if pieces and pieces[-1].style == style:
            pieces[-1] = StyledText(pieces[-1].text + safe, style)
        elif safe:
            pieces.append(StyledText(safe, style))
    return pieces


def shortened(text: str, width: int) -> str:
    """A text that fits, with a mark where it was cut."""
    safe = cell_text(text)
    if cell_len(safe) <= width:
        return safe
    return set_cell_size(safe, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def wrapped(text: str, width: int) -> list[str]:
    """A text of one line as several that fit; nothing is left out."""
    safe = cell_text(text)
    if cell_len(safe) <= width:
        return [safe]
    lines, line, used = [], "", 0
    for character in safe:
        size = cell_len(character)
        if used + size > width:
            lines.append(line)
            line, used = "", 0
        line, used = line + character, used + size
    return [*lines, line]
