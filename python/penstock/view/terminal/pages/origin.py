"""The origin of a token: the text of its sample beside the sample's tokens, with one cursor in both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Unpack

from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget

from penstock.view.address import Address, VersionAddress
from penstock.view.model.fields import FieldView
from penstock.view.model.tokens.batch import BatchView
from penstock.view.model.tokens.samples import Samples
from penstock.view.terminal.overlay import Lines
from penstock.view.terminal.page import Page, titled
from penstock.view.terminal.pane import Bar, Pane, WidgetKeywords
from penstock.view.terminal.text import looks
from penstock.view.terminal.text.block_walk import Position, moved
from penstock.view.terminal.text.field_lines import field_lines
from penstock.view.terminal.text.flow import Placed, flow, line_of, nearest
from penstock.view.terminal.text.styled_line import Line, StyledText
from penstock.view.wire.batch_answers import SampleStagesAnswer

#: Tokens that are laid out at once.
_STRETCH = 512


@dataclass(frozen=True, slots=True)
class SampleStages:
    """A sample as the view-model gives it, and the token to begin with."""

    address: VersionAddress
    stages: SampleStagesAnswer
    #: The text that tokens were made of; None where there is none.
    text: str | None
    token: int
    #: Tokens of the sample that stand in the row one came from.
    stretch: tuple[int, int]

    @property
    def pieces(self) -> list[str] | None:
        """The text of every token; what several tokens share, a character that fell apart, stands with the first. None without spans."""
        spans = self.stages["tokens"]["spans"]
        if spans is None or self.text is None:
            return None
        pieces, done = [], 0
        for at, (start, stop) in enumerate(spans):
            end = max(done, stop)
            # What no token holds stands with the one before it.
            following = spans[at + 1][0] if at + 1 < len(spans) else len(self.text)
            end = max(end, min(following, len(self.text)))
            pieces.append(self.text[min(start, done) if start < done else done : end] if end > done else "")
            done = end
        return pieces


def sample_of(samples: Samples, view: BatchView, cursor: tuple[int, int]) -> SampleStages:
    """The sample of a token; called in a thread."""
    stages = samples.stages(view, *cursor)
    origin = stages["origin"]
    start, stop = origin["token_span"]
    token = start + cursor[1] - origin["row_span"][0]
    document = next(
        candidate
        for candidate in view.documents.of_row(cursor[0])
        if candidate.at <= cursor[1] < candidate.stop
    )
    text = samples.text_of(document.source, document.sample)
    return SampleStages(
        VersionAddress(origin["version"], origin["sample"]), stages, text, token, (start, stop)
    )


class TokenPane(Pane):
    """Texts that belong to tokens, flowing, with the cursor on one of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", "token before", show=False),
        Binding("right,l", "move(1)", "token after", show=False),
        Binding("up,k", "line(-1)", "line above", show=False),
        Binding("down,j", "line(1)", "line below", show=False),
        Binding("pageup", "line(-10)", "page up", show=False),
        Binding("pagedown,space", "line(10)", "page down", show=False),
        Binding("home", "move(-1000000000)", "first token", show=False),
        Binding("end", "move(1000000000)", "last token", show=False),
    ]

    class Moved(Message):
        """The cursor is on another token."""

        def __init__(self, token: int) -> None:
            super().__init__()
            self.token = token

    def __init__(
        self,
        texts: Sequence[str],
        inside: tuple[int, int],
        *,
        colours: bool,
        breaks: bool = False,
        **widget: Unpack[WidgetKeywords],
    ) -> None:
        super().__init__(**widget)
        self._breaks = breaks
        self._texts = texts
        self._inside = inside
        self._colours = colours
        self.cursor = 0

    def block_count(self) -> int:
        """Stretches."""
        return -(-len(self._texts) // _STRETCH)

    def lay(self, block: int) -> list[list[Placed]]:
        """A stretch."""
        first = block * _STRETCH
        return flow(self._texts[first : first + _STRETCH], self.text_width, first=first, breaks=self._breaks)

    def draw(self, block: int, line: int, laid: list[Placed]) -> Line:
        """Tokens; those that are not in the row are dim."""
        return [StyledText(placed.text, self._style(placed.token)) for placed in laid]

    def settle(self) -> None:
        """Keep the cursor in sight."""
        if self._texts:
            self.bring(self._place())

    def go(self, token: int) -> None:
        """Put the cursor on a token."""
        self.cursor = max(0, min(token, len(self._texts) - 1))
        # In the text, a character that fell apart into several tokens stands with the first of them.
        while self._breaks and self.cursor and not self._texts[self.cursor]:
            self.cursor -= 1
        self.settle()

    def action_move(self, tokens: int) -> None:
        """To a neighbour."""
        token = self.cursor + tokens
        while self._breaks and 0 <= token < len(self._texts) and not self._texts[token]:
            token += 1 if tokens > 0 else -1
        self.post_message(self.Moved(max(0, min(token, len(self._texts) - 1))))

    def action_line(self, lines: int) -> None:
        """To the token above or below."""
        block, line = self._place()
        x = next((placed.x for placed in self.lines_of(block)[line] if placed.token == self.cursor), 0)
        at = moved((block, line), lines, blocks=self.block_count(), height=self.height_of)
        token = nearest(self.lines_of(at[0])[at[1]], x)
        if token is not None:
            self.post_message(self.Moved(token))

    def _place(self) -> Position:
        block = self.cursor // _STRETCH
        return block, line_of(self.lines_of(block), self.cursor)

    def _style(self, token: int) -> Style:
        if token == self.cursor:
            return looks.CURSOR
        if not self._inside[0] <= token < self._inside[1]:
            return looks.quiet(odd=bool(token % 2), colours=self._colours)
        return looks.hue("cyan", odd=bool(token % 2), colours=self._colours)


class OriginPage(Page):
    """A sample as text beside the same sample as tokens, with one cursor in both."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "raw", "raw fields"),
        Binding("enter", "sample", "open the row"),
        Binding("tab", "app.focus_next", "other pane", show=False),
    ]
    DEFAULT_CSS = (
        "OriginPage > #sides { height: 1fr; } OriginPage #right { border-left: solid ansi_default; }"
    )

    def __init__(self, sample: SampleStages) -> None:
        super().__init__()
        self._sample = sample
        self._tokens = sample.stages["tokens"]

    @property
    def address(self) -> Address:
        """That of the sample."""
        return self._sample.address

    def heading(self) -> Line:
        """The sample, and where its tokens are."""
        inputs = len(self._sample.stages["input"])
        more = f"{self._sample.stages['source']}  {len(self._tokens['ids'])} tokens, {inputs} stretch{'es' * (inputs != 1)} in the batch"
        return titled(str(self.address), more, self.size.width)

    def body(self) -> Iterator[Widget]:
        """Text and tokens."""
        yield Sides(self._left(), self._right(), id="sides")

    def _left(self) -> list[Widget]:
        pieces = self._sample.pieces
        raw = Lines(self._raw_lines(), id="raw")
        raw.display = pieces is None
        if pieces is None:
            return [raw]
        return [TokenPane(pieces, self._sample.stretch, colours=self.colours, breaks=True, id="left"), raw]

    def _right(self) -> Widget:
        return TokenPane(self._tokens["joined"], self._sample.stretch, colours=self.colours, id="right")

    def on_mount(self) -> None:
        """Both cursors on the token one came from."""
        self.query_one("#right", TokenPane).focus()
        self.call_after_refresh(self._move, self._sample.token)

    def on_token_pane_moved(self, message: TokenPane.Moved) -> None:
        """One cursor in both."""
        self._move(message.token)

    def action_raw(self) -> None:
        """The fields as they were registered, or the text that was tokenised."""
        left = list(self.query("#left"))
        if not left:
            self.say("nothing says which characters its tokens were made of, so the fields are all there is")
            return
        raw = self.query_one("#raw")
        raw.display, left[0].display = not raw.display, raw.display
        (raw if raw.display else self.query_one("#right")).focus()

    def action_sample(self) -> None:
        """The row of the version."""
        self.go(self.address)

    def _move(self, token: int) -> None:
        for pane in self.query(TokenPane):
            pane.go(token)
        self.query_one("#status", Bar).show(*self._status(token))

    def _status(self, token: int) -> list[Line]:
        tokens, (first, stop) = self._tokens, self._sample.stretch
        if not tokens["ids"]:
            return [[StyledText("the sample has no tokens", looks.DIM)]]
        token = min(token, len(tokens["ids"]) - 1)
        where = "in the row" if first <= token < stop else "not in the row"
        spans = tokens["spans"]
        characters = (
            "nothing says which characters"
            if spans is None
            else f"characters {spans[token][0]}–{spans[token][1]}"
        )
        return [
            [
                StyledText(f"token {token} of the sample", looks.BOLD),
                StyledText(
                    f"  id {tokens['ids'][token]}  {tokens['kinds'][token]}  “{tokens['texts'][token]}”  {characters}"
                ),
            ],
            [StyledText(f"{where}: it has tokens {first}–{stop} of this sample", looks.DIM)],
            [StyledText(tokens["cut"] and f"left out: {tokens['cut']}", looks.DIM)],
        ]

    def _raw_lines(self) -> list[Line]:
        fields = [FieldView(**field) for field in self._sample.stages["raw"]["fields"]]
        return field_lines(fields)


class Sides(Horizontal):
    """Two sides beside each other."""

    def __init__(self, left: Sequence[Widget], right: Widget, **widget: Unpack[WidgetKeywords]) -> None:
        super().__init__(**widget)
        self._sides = [*left, right]

    def compose(self) -> ComposeResult:
        """Left, right."""
        yield from self._sides
