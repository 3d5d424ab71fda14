"""A page: one thing to look at, with a line above that says what it is, and lines below that say what the cursor is on and which keys there are."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from penstock.errors import PenstockError
from penstock.view.address import Address
from penstock.view.terminal.background import Loaded, Loader
from penstock.view.terminal.destination import target
from penstock.view.terminal.overlay import Overlay
from penstock.view.terminal.pane import Bar
from penstock.view.terminal.text import looks
from penstock.view.terminal.text.prompt import Question
from penstock.view.terminal.text.styled_line import Line, StyledText, shortened, wrapped

if TYPE_CHECKING:
    from penstock.view.terminal.app import ViewApp

#: How keys are written for people.
_KEY_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "escape": "Esc",
}
#: Lines that a sentence takes at most.
_SAID_MAX = 8
_ORDER = {"keys": 0, "quit": 1, "go": 3, "address": 4}


class Page(Screen[None], inherit_bindings=False):
    """Base of all pages."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "keys", "keys"),
        Binding("g", "go", "go", priority=True),
        Binding("y", "address", "address"),
        Binding("escape,backspace", "back", "back", show=False),
        Binding("q,ctrl+c", "app.leave", "quit"),
    ]
    DEFAULT_CSS = "Page { layout: vertical; overflow: hidden; } Page > #status { height: 3; }"
    #: Lines for what the cursor is on.
    STATUS = True
    #: What the prompt of ``g`` asks for.
    GO = "address"

    def __init__(self) -> None:
        super().__init__()
        self.loader = Loader(self)
        self._said: Line | None = None
        #: What is being typed, if something is.
        self.question: Question | None = None

    @property
    def view_app(self) -> "ViewApp":
        """The application, with its own type."""
        return self.app  # type: ignore[return-value]

    @property
    def colours(self) -> bool:
        """Whether there are colours."""
        return not self.app.no_color

    @property
    def address(self) -> Address | None:
        """What is looked at, as far as it has an address."""
        return None

    def body(self) -> Iterator[Widget]:
        """The panes."""
        yield from ()

    def heading(self) -> Line:
        """The line above."""
        return []

    def compose(self) -> ComposeResult:
        """Head, panes, status and foot."""
        yield Bar(id="head")
        yield from self.body()
        if self.STATUS:
            yield Bar(id="status")
        yield Bar(id="foot")

    def on_mount(self) -> None:
        """Write head and foot."""
        self.retitle()

    def retitle(self) -> None:
        """Write head and foot again."""
        head = self.query("#head")
        if not head:
            return
        waiting = [] if self.loader.idle else [StyledText(" loading… ", looks.REVERSE)]
        head.only_one(Bar).show([*waiting, *self.heading()])
        foot, lines = self.query_one("#foot", Bar), self._foot()
        # A long sentence takes the lines that it needs.
        foot.styles.height = len(lines)
        foot.show(*lines)

    def ask(self, slot: str, work: Callable[[], Any], then: Callable[[Any], object]) -> None:
        """Do something in a thread; its problem, if it has one, becomes a sentence at the foot."""
        self.loader.ask(slot, work, then)
        self.retitle()

    def on_loaded(self, message: Loaded) -> None:
        """Something was done."""
        message.stop()
        problem = self.loader.deliver(message)
        if problem is not None:
            self.failed(problem)
        self.retitle()

    def failed(self, problem: PenstockError | OSError) -> None:
        """Say what went wrong; the page stays."""
        hint = getattr(problem, "hint", "")
        self.say(f"{problem}" + (f" ({hint})" if hint else ""), problem=True)

    def say(self, words: str, *, problem: bool = False) -> None:
        """A sentence at the foot, until the next key."""
        style = looks.problem(colours=self.colours) if problem else looks.BOLD
        self._said = [StyledText(words, style)]
        self.retitle()

    def on_key(self) -> None:
        """What was said has been read."""
        if self._said is not None:
            self._said = None
            self.retitle()

    def action_back(self) -> None:
        """To the page before."""
        self.view_app.back()

    def action_keys(self) -> None:
        """List the keys."""
        self.app.push_screen(
            Overlay(
                "keys",
                [
                    [StyledText(f"{keys:<18}", looks.BOLD), StyledText(words)]
                    for keys, words in self.key_list()
                ],
            )
        )

    def key_list(self) -> list[tuple[str, str]]:
        """All keys that do something here, by what they do."""
        by_words: dict[str, list[str]] = {}
        for active in self.active_bindings.values():
            binding = active.binding
            if binding.description and active.enabled:
                by_words.setdefault(binding.description, []).append(_KEY_NAMES.get(binding.key, binding.key))
        return [(" ".join(dict.fromkeys(keys)), words) for words, keys in by_words.items()]

    def action_address(self) -> None:
        """Show address and commands, to be copied."""
        from penstock.view.model.commands import commands_of

        address = self.address
        if address is None:
            self.say("this page has no address")
            return
        commands = commands_of(address)
        lines = [
            [StyledText(str(address), looks.BOLD)],
            [],
            [StyledText(commands["command"])],
            [StyledText(commands["data_command"])],
        ]
        self.app.push_screen(Overlay("to copy", lines))

    def action_go(self) -> None:
        """Ask where to go."""
        self.ask_text(f"go to {self.GO}: ", self._go)

    def ask_text(self, words: str, then: Callable[[str], object], text: str = "") -> None:
        """Let a line be typed at the foot. Keys that call this have priority, so that the next key is typed already."""
        self.question = Question(words, then, text)
        self.retitle()

    def typed(self, event: events.Key | events.Paste) -> None:
        """A key or a paste, while something is being typed."""
        question = self.question
        assert question is not None
        if isinstance(event, events.Paste):
            question.insert(event.text)
        else:
            question.key(event.key, event.character)
        # The answer may have asked for something else.
        if question.ended and self.question is question:
            self.question = None
        self.retitle()

    def _go(self, text: str) -> None:
        try:
            self.go(target(self.address, text))
        except PenstockError as problem:
            self.failed(problem)

    def go(self, address: Address) -> None:
        """Open another page."""
        self.view_app.look_at(address, self)

    def _foot(self) -> list[Line]:
        width = max(8, self.size.width)
        if self.question is not None:
            return [self.question.line(width)]
        if self._said is None:
            return [self._hints()]
        if sum(len(piece.text) for piece in self._said) <= width:
            return [self._said]
        style = self._said[0].style
        return [
            [StyledText(part, style)]
            for part in wrapped("".join(piece.text for piece in self._said), width)[:_SAID_MAX]
        ]

    def _hints(self) -> Line:
        pieces: list[StyledText] = []
        # First how to learn more and how to leave, then what this page has, then what all have.
        shown = sorted(
            (active.binding for active in self.active_bindings.values() if active.binding.show),
            key=lambda binding: _ORDER.get(binding.description, 2),
        )
        for binding in shown:
            if binding.description:
                name = _KEY_NAMES.get(binding.key, binding.key)
                hint = [StyledText(name, looks.BOLD), StyledText(f" {binding.description}  ")]
                # What does not fit whole is left to the list of keys.
                room = self.size.width + 2 - sum(len(piece.text) for piece in (*pieces, *hint))
                if room >= 0 and hint[1] not in pieces:
                    pieces += hint
        return pieces


def tail(text: str, width: int) -> str:
    """The end of a text that is too long, which of a path says most, with a mark where it was cut."""
    return text if len(text) <= width else "…" + text[len(text) - max(0, width - 1) :]


def titled(words: str, more: str, width: int) -> Line:
    """A heading: what it is, and what is known of it."""
    return [StyledText(shortened(words, width), looks.BOLD), StyledText(f"  {more}", looks.DIM)]
