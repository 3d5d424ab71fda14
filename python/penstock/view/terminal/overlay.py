"""What stands above a page for a moment: lines to read."""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from penstock.view.terminal.pane import Bar, Pane, WidgetKeywords
from penstock.view.terminal.text import looks
from penstock.view.terminal.text.styled_line import Line, StyledText, wrapped


class Lines(Pane):
    """Some lines, wrapped where they are too long, to scroll through."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "lines(1)", "line down", show=False),
        Binding("up,k", "lines(-1)", "line up", show=False),
        Binding("pagedown,space", "pages(1)", "page down", show=False),
        Binding("pageup", "pages(-1)", "page up", show=False),
        Binding("home", "end(-1)", "beginning", show=False),
        Binding("end", "end(1)", "end", show=False),
    ]

    def __init__(self, lines: Sequence[Line] = (), **widget: Unpack[WidgetKeywords]) -> None:
        super().__init__(**widget)
        self.lines = list(lines)

    def replace(self, lines: Sequence[Line]) -> None:
        """Show other lines, from the beginning."""
        self.lines = list(lines)
        self.top = (0, 0)
        self.forget()

    def block_count(self) -> int:
        """Every line is a block."""
        return len(self.lines)

    def lay(self, block: int) -> list[Line]:
        """A line as several where it is too long."""
        width = max(4, self.text_width)
        lines: list[list[StyledText]] = [[]]
        used = 0
        for text, style in self.lines[block]:
            parts = wrapped(text, width - used) if used < width else ["", *wrapped(text, width)]
            lines[-1].append(StyledText(parts[0], style))
            # What is left after a part that fitted beside others has whole lines.
            rest = "".join(parts[1:])
            for part in wrapped(rest, width) if rest else ():
                lines.append([StyledText(part, style)])
            used = sum(len(strip.text) for strip in lines[-1])
        return list(lines)

    def draw(self, block: int, line: int, laid: Line) -> Line:
        """As it is."""
        return laid

    def action_lines(self, lines: int) -> None:
        """Some lines further."""
        self.scroll_lines(lines)

    def action_pages(self, pages: int) -> None:
        """A screen further."""
        self.scroll_lines(pages * max(1, self.size.height - 1))

    def action_end(self, where: int) -> None:
        """To the beginning or the end."""
        self.top = (0, 0) if where < 0 else (max(0, self.block_count() - 1), 0)
        self.scroll_lines(0)


class Overlay(ModalScreen[None]):
    """Lines to read; any other key than those that scroll ends it."""

    DEFAULT_CSS = "Overlay { layout: vertical; background: ansi_default; } Overlay > Bar { height: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,y,question_mark,backspace,ctrl+c", "dismiss", "close", show=False)
    ]

    def __init__(self, title: str, lines: Sequence[Line]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Title, lines, and how it ends."""
        yield Bar([[StyledText(self._title, looks.REVERSE)]])
        yield Lines(self._lines)
        yield Bar([[StyledText("Esc", looks.BOLD), StyledText(" closes")]])

    async def action_dismiss(self, result: Any = None) -> None:
        """Back to the page."""
        self.dismiss(None)
