"""A pane: lines of something long, of which only those on the screen are ever asked for.

What is shown comes in *blocks* of lines (a row of a table, a stretch of tokens), laid out when they come into sight. The scrollbar is scaled:
it says where among the blocks one is, so that a billion of them scroll like ten.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from rich.style import Style
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from penstock.view.terminal.text import block_walk as walking
from penstock.view.terminal.text.block_walk import Position
from penstock.view.terminal.text.styled_line import Line, StyledText, strip_of

#: Blocks whose layout is kept.
_KEPT = 256
_TRACK, _THUMB = StyledText("│", Style(dim=True)), StyledText("█")


class WidgetKeywords(TypedDict, total=False):
    """What every widget of Textual takes."""

    name: str | None
    id: str | None
    classes: str | None
    disabled: bool


class Pane(Widget, can_focus=True):
    """Base of all panes. Those that follow say how many blocks there are, how they are laid out and how a line is drawn."""

    DEFAULT_CSS = "Pane { height: 1fr; width: 1fr; }"

    def __init__(self, **widget: Unpack[WidgetKeywords]) -> None:
        super().__init__(**widget)
        self.top: Position = (0, 0)
        self._laid: OrderedDict[int, Sequence[Any]] = OrderedDict()
        self._thumb: tuple[Position, tuple[int, int]] | None = None

    def block_count(self) -> int:
        """How many blocks there are."""
        raise NotImplementedError

    def lay(self, block: int) -> Sequence[Any]:
        """The lines of a block, in whatever form ``draw`` takes; at least one."""
        raise NotImplementedError

    def draw(self, block: int, line: int, laid: Any) -> Line:
        """A line as it stands on the screen now."""
        raise NotImplementedError

    @property
    def text_width(self) -> int:
        """Cells of a line, beside the scrollbar."""
        return max(1, self.size.width - 1)

    def lines_of(self, block: int) -> Sequence[Any]:
        """The lines of a block, laid out once."""
        known = self._laid.get(block)
        if known is None:
            known = self._laid[block] = self.lay(block)
            while len(self._laid) > _KEPT:
                self._laid.popitem(last=False)
        return known

    def height_of(self, block: int) -> int:
        """How many lines a block has."""
        return len(self.lines_of(block))

    def forget(self) -> None:
        """Lay everything out again: something else is shown, or otherwise."""
        self._laid.clear()
        self._thumb = None
        self.refresh()

    def on_resize(self, _: events.Resize) -> None:
        """Lines have another length now."""
        self.forget()
        self.settle()

    def settle(self) -> None:
        """After a change: the top is where something is. Panes with a cursor keep it in sight."""
        self.scroll_lines(0)

    def scroll_lines(self, lines: int) -> None:
        """Let other lines be seen, as far as there are some."""
        count = self.block_count()
        top = walking.moved(self._within(self.top), lines, blocks=count, height=self.height_of)
        low = walking.last_top(blocks=count, screen=self.size.height, height=self.height_of)
        self.top = min(top, low)
        self.refresh()

    def bring(self, place: Position) -> None:
        """Let a place be seen: scroll as little as needed, or to the middle when it is far."""
        screen = max(1, self.size.height)
        below = walking.between(self.top, place, limit=3 * screen, height=self.height_of)
        if 0 <= below < screen:
            self.scroll_lines(0)
            return
        above = walking.between(place, self.top, limit=screen, height=self.height_of) if below < 0 else screen
        self.top = place
        if below >= 0 and below < 2 * screen:
            self.scroll_lines(1 - screen)
        else:
            self.scroll_lines(0 if 0 <= above < screen else -(screen // 2))

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        width, count = self.size.width, self.block_count()
        if not count or width < 2:
            return Strip.blank(width)
        top = self._within(self.top)
        block, line = top[0], top[1] + y
        while block < count and line >= (tall := self.height_of(block)):
            line -= tall
            block += 1
        drawn = self.draw(block, line, self.lines_of(block)[line]) if block < count else ()
        return Strip.join([strip_of(drawn, width - 1), strip_of(self._bar(y), 1)])

    def _within(self, place: Position) -> Position:
        count = self.block_count()
        if place[0] >= count:
            return (max(0, count - 1), 0)
        return (place[0], min(place[1], self.height_of(place[0]) - 1))

    def _bar(self, y: int) -> Line:
        if self._thumb is None or self._thumb[0] != self.top:
            count, screen = self.block_count(), self.size.height
            thumb = walking.thumb(self._within(self.top), blocks=count, screen=screen, height=self.height_of)
            self._thumb = (self.top, thumb)
        first, length = self._thumb[1]
        if not length:
            return (StyledText(" "),)
        return (_THUMB,) if first <= y < first + length else (_TRACK,)


class Bar(Widget):
    """A few lines that stay: what one looks at, what the cursor is on, which keys there are."""

    DEFAULT_CSS = "Bar { height: 1; width: 1fr; }"

    def __init__(self, lines: Sequence[Line] = (), **widget: Unpack[WidgetKeywords]) -> None:
        super().__init__(**widget)
        self.lines: Sequence[Line] = lines

    def show(self, *lines: Line) -> None:
        """Show other lines."""
        self.lines = lines
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One of the lines."""
        return strip_of(self.lines[y] if y < len(self.lines) else (), self.size.width)
