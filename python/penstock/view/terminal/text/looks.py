"""How things look: sixteen colours that every terminal has, or none, and then attributes and written marks instead.

Neighbouring tokens alternate between a colour and its bright twin, so that one sees where a token ends; without colours every second
one is underlined. The cursor is always reversed, so it is seen either way.
"""

from functools import cache

from rich.style import Style

#: Colours of segments and sources, in turn. Each has a bright twin.
HUES = ("cyan", "green", "yellow", "magenta", "blue", "red")
#: From little to much, for columns of numbers.
HEAT = ("blue", "cyan", "green", "yellow", "red")

DIM = Style(dim=True)
BOLD = Style(bold=True)
REVERSE = Style(reverse=True)
#: What the view itself writes among the tokens, so that data cannot pretend to be it.
MARK = Style(reverse=True, bold=True)
#: The token of the cursor.
CURSOR = Style(reverse=True, bold=True)


@cache
def hue(name: str, *, odd: bool, colours: bool) -> Style:
    """The style of a token of a colour; of every second one, the twin."""
    if not colours:
        return Style(underline=odd)
    return Style(color=f"bright_{name}" if odd else name)


@cache
def quiet(*, odd: bool, colours: bool) -> Style:
    """Padding, and tokens without loss."""
    if not colours:
        return Style(dim=True, underline=odd)
    return Style(color="bright_black" if odd else "white", dim=True)


@cache
def found(*, colours: bool) -> Style:
    """What a search has found."""
    return Style(color="black", bgcolor="yellow") if colours else Style(bold=True, underline=True)


@cache
def different(*, colours: bool) -> Style:
    """A token that differs from the other side's."""
    return Style(color="white", bgcolor="red", bold=True) if colours else Style(bold=True, reverse=True)


@cache
def problem(*, colours: bool) -> Style:
    """A sentence about something that failed."""
    return Style(color="red", bold=True) if colours else BOLD
