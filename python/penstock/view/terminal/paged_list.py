"""A list of things that come in pages: one line each, one of them chosen. A page is fetched when it comes into sight, and no other."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Unpack

from textual.binding import Binding, BindingType
from textual.message import Message

from penstock.view.terminal.pane import Pane, WidgetKeywords
from penstock.view.terminal.text import looks
from penstock.view.terminal.text.styled_line import Line, StyledText

#: Lines that are fetched at once, and pages that are kept.
PAGE, _PAGES_MAX = 64, 32
#: Fetches the lines from one number to another.
Fetch = Callable[[int, int], Sequence[Line]]


class Listing(Pane):
    """A list that fetches a page when the page comes into sight."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "next", show=False),
        Binding("up,k", "move(-1)", "previous", show=False),
        Binding("pagedown,space", "pages(1)", "page down", show=False),
        Binding("pageup", "pages(-1)", "page up", show=False),
        Binding("home", "end(-1)", "first", show=False),
        Binding("end", "end(1)", "last", show=False),
        Binding("enter,right", "choose", "open"),
    ]

    class Chosen(Message):
        """A line was chosen."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    class Wanted(Message):
        """Lines came into sight that have to be fetched."""

        def __init__(self, page: int) -> None:
            super().__init__()
            self.page = page

    class Moved(Message):
        """Another line is under the cursor."""

    def __init__(self, count: int, **widget: Unpack[WidgetKeywords]) -> None:
        super().__init__(**widget)
        self.count = count
        self.cursor = 0
        self._pages: OrderedDict[int, Sequence[Line]] = OrderedDict()
        self._asked: set[int] = set()

    def block_count(self) -> int:
        """Every thing is a line."""
        return self.count

    def lay(self, block: int) -> list[int]:
        """One line, which is looked up when it is drawn."""
        return [block]

    def height_of(self, block: int) -> int:
        """One, without asking anybody."""
        return 1

    def draw(self, block: int, line: int, laid: Any) -> Line:
        """The line, or that it is on its way."""
        page, at = divmod(block, PAGE)
        known = self._pages.get(page)
        if known is None:
            self._want(page)
            pieces: Line = [StyledText(f"{block}  …", looks.DIM)]
        else:
            self._pages.move_to_end(page)
            pieces = known[at] if at < len(known) else []
        if block != self.cursor:
            return pieces
        return [StyledText(text, style + looks.REVERSE) for text, style in pieces] + [
            StyledText(" " * self.size.width, looks.REVERSE)
        ]

    def fetched(self, page: int, lines: Sequence[Line]) -> None:
        """A page has come."""
        self._asked.discard(page)
        self._pages[page] = lines
        while len(self._pages) > _PAGES_MAX:
            self._pages.popitem(last=False)
        self.refresh()

    def renew(self, count: int) -> None:
        """Something else is listed."""
        self.count = count
        self._pages.clear()
        self._asked.clear()
        self.forget()

    def settle(self) -> None:
        """Keep the cursor in sight."""
        if self.count:
            self.bring((self.cursor, 0))

    def go(self, number: int) -> None:
        """Put the cursor on a line, or the nearest that there is."""
        self.cursor = max(0, min(number, self.count - 1))
        self.settle()
        self.post_message(self.Moved())

    def action_move(self, lines: int) -> None:
        """To a neighbour."""
        self.go(self.cursor + lines)

    def action_pages(self, pages: int) -> None:
        """A screen further."""
        page = pages * max(1, self.size.height - 1)
        self.top = (max(0, min(self.top[0] + page, max(0, self.count - self.size.height))), 0)
        self.go(self.cursor + page)

    def action_end(self, where: int) -> None:
        """To the first or the last."""
        self.go(0 if where < 0 else self.count - 1)

    def action_choose(self) -> None:
        """Open the line."""
        if self.count:
            self.post_message(self.Chosen(self.cursor))

    def _want(self, page: int) -> None:
        if page not in self._asked:
            self._asked.add(page)
            self.post_message(self.Wanted(page))
