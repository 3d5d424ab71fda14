"""The application: opens addresses as pages, one above the other, and ends with an exit code."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from textual import events
from textual.app import App
from textual.binding import BindingType

from penstock.errors import PenstockError
from penstock.view.address import Address
from penstock.view.terminal.page import Page, tail
from penstock.view.terminal.text.styled_line import Line, StyledText

if TYPE_CHECKING:
    from penstock.view.opener import Opener

#: Makes what opens addresses. Called in a thread, since importing it takes longer than drawing the first screen.
Opening: TypeAlias = "Callable[[Callable[[str, int, int], None]], Opener]"


class OpeningPage(Page):
    """Says that something is being opened, until it is."""

    STATUS = False

    def __init__(self, address: Address | None) -> None:
        super().__init__()
        self._opened = address

    def heading(self) -> Line:
        """What is awaited, and how far it is."""
        what = "datasets" if self._opened is None else str(self._opened)
        return [
            StyledText(f" opening{self.view_app.progress} "),
            StyledText(tail(what, self.size.width - 50)),
        ]

    def on_mount(self) -> None:
        """Begin."""
        self.ask("open", lambda: self.view_app.found(self._opened), self.view_app.begin)

    def failed(self, problem: PenstockError | OSError) -> None:
        """Nothing to look at: the command ends as any other that cannot do what it was told."""
        self.view_app.problem = problem
        self.app.exit()


class ViewApp(App[int], inherit_bindings=False):
    """The terminal application: a stack of pages, one per address."""

    BINDINGS: ClassVar[list[BindingType]] = []
    ENABLE_COMMAND_PALETTE = False
    CSS = "Page, Overlay { background: ansi_default; color: ansi_default; }"

    def __init__(self, address: Address | None, opening: Opening) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.animation_level = "none"
        self._address = address
        self._opening = opening
        self._opener: Opener | None = None
        #: Why there is nothing to look at, if there is nothing.
        self.problem: PenstockError | OSError | None = None
        #: How far the preparation of a plan is.
        self.progress = ""

    @property
    def opener(self) -> "Opener":
        """What opens addresses."""
        if self._opener is None:
            self._opener = self._opening(self._watch)
        return self._opener

    def on_mount(self) -> None:
        """Show something at once; what it shows comes later."""
        self.push_screen(OpeningPage(self._address))

    async def on_event(self, event: events.Event) -> None:
        """While something is being typed, keys are text."""
        page = self.screen if self.screen_stack else None
        if (
            isinstance(event, events.Key | events.Paste)
            and isinstance(page, Page)
            and page.question is not None
        ):
            page.typed(event)
            return
        await super().on_event(event)

    def action_leave(self) -> None:
        """The end."""
        self.exit()

    def back(self) -> None:
        """To the page before; from the first there is none."""
        # Below the pages lies the blank screen that every application has.
        if len(self.screen_stack) > 2:
            self.pop_screen()
        elif isinstance(self.screen, Page):
            self.screen.say("this is the first page; q leaves")

    def found(self, address: Address | None) -> list[Callable[[], Page]]:
        """What makes the pages of an address; called in a thread."""
        from penstock.view.terminal.page_of import pages_of

        return pages_of(self.opener, address)

    def begin(self, makers: list[Callable[[], Page]]) -> None:
        """The first page takes the place of the one that said that it would come."""
        self.switch_screen(makers[0]())
        for make in makers[1:]:
            self.push_screen(make())

    def look_at(self, address: Address, page: Page) -> None:
        """Open an address above a page."""
        # The one on top alone: the way back leads to where one was.
        page.ask("open", lambda: self.found(address), lambda makers: self.push_screen(makers[-1]()))

    def _watch(self, what: str, done: int, total: int) -> None:
        """Told by a thread how far a preparation is; drawn with the next refresh of the page."""
        self.progress = f" ({what} {done / max(1, total):.0%})"
        self.call_later(self._retitle)

    def _retitle(self) -> None:
        if isinstance(self.screen, Page):
            self.screen.retitle()
