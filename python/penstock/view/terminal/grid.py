"""The token grid: rows of a batch as flowing text, coloured by segment, loss, source or a column of numbers, with a cursor on a token.

A row is laid out in stretches of ``STRETCH`` tokens, each when it comes into sight; a stretch is one window of the view-model.
"""

from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from penstock.view.model.tokens.batch import BatchView
from penstock.view.model.tokens.documents import NO_SOURCE
from penstock.view.model.tokens.vocabulary import TokenKind
from penstock.view.terminal.pane import Pane, WidgetKeywords
from penstock.view.terminal.text import looks
from penstock.view.terminal.text.block_walk import Position, moved
from penstock.view.terminal.text.flow import Placed, flow, line_of, nearest
from penstock.view.terminal.text.styled_line import Line, StyledText, shortened

#: Tokens that are laid out at once.
STRETCH = 512
#: What tokens are written as; in text, characters that several tokens share are whole.
WRITTEN = ("text", "ids", "text and ids", "exact bytes")
_IDS, _BOTH, _EXACT = 1, 2, 3
_HEAD = "head"


class RowStretch(NamedTuple):
    """What a stretch of a row is made of."""

    texts: list[str]
    kinds: npt.NDArray[np.uint8]
    #: What decides the colour, one for each token; and what a mark says of it.
    values: npt.NDArray[Any]
    segments: npt.NDArray[Any]


class TokenGrid(Pane):
    """Rows of a batch as coloured text, with a cursor on a token."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", "token before", show=False),
        Binding("right,l", "move(1)", "token after", show=False),
        Binding("up,k", "line(-1)", "line above", show=False),
        Binding("down,j", "line(1)", "line below", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown,space", "page(1)", "page down", show=False),
        Binding("home", "edge(0)", "first token of the row", show=False),
        Binding("end", "edge(-1)", "last token of the row", show=False),
        Binding("left_curly_bracket", "row(-1)", "row before", show=False),
        Binding("right_curly_bracket", "row(1)", "row after", show=False),
        Binding("ctrl+home", "row(-1000000000)", "first row", show=False),
        Binding("ctrl+end", "row(1000000000)", "last row", show=False),
    ]

    class Moved(Message):
        """The cursor is on another token."""

        def __init__(self, grid: "TokenGrid") -> None:
            super().__init__()
            self.grid = grid

    def __init__(self, view: BatchView, *, colours: bool, **widget: Unpack[WidgetKeywords]) -> None:
        super().__init__(**widget)
        self.view = view
        self.colours = colours
        #: Row and token of the cursor.
        self.cursor = (0, 0)
        self.by = 0
        self.written = 0
        #: Tokens that a search has found, and those that differ from the other side, by row.
        self.matches: dict[int, set[int]] = {}
        self.differing: npt.NDArray[np.bool_] | None = None
        #: In a diff, the other side: both have the same tokens on the same lines.
        self.twin: TokenGrid | None = None

    @property
    def modes(self) -> list[str]:
        """What tokens can be coloured by."""
        return ["segment", "loss", "source", *self.view.numeric]

    @property
    def mode(self) -> str:
        """What they are coloured by now."""
        return self.modes[self.by % len(self.modes)]

    @property
    def _parts(self) -> int:
        return max(1, -(-self.view.length // STRETCH))

    @property
    def number_width(self) -> int:
        """Cells for the number of a line's first token."""
        longest = max(self.view.length, self.twin.view.length if self.twin else 0)
        return len(str(max(0, longest - 1))) + 1

    def look_at(self, view: BatchView) -> None:
        """Show another batch; the cursor stays where it is, as far as there is such a token."""
        self.view = view
        self.matches = {}
        self.forget()
        self.go(*self.cursor)

    def block_count(self) -> int:
        """Stretches of all rows."""
        return self.view.rows * self._parts if self.view.length else 0

    def lay(self, block: int) -> list[Any]:
        """The lines of a stretch: for the first of a row, a heading before."""
        row, part = divmod(block, self._parts)
        first = part * STRETCH
        stretch = self._stretch(self.view, row, first)
        beside = None
        width = self.text_width - self.number_width
        if self.twin is not None:
            beside = self._stretch(self.twin.view, row, first).texts
            beside = (beside + [""] * len(stretch.texts))[: len(stretch.texts)]
            width = min(width, self.twin.text_width - self.number_width)
        marks = {} if self.colours else self._marks(stretch, row, first)
        lines = flow(stretch.texts, max(8, width), first=first, marks=marks, beside=beside)
        laid: list[Any] = [(line, stretch, first) for line in lines]
        return [_HEAD, *laid] if part == 0 else laid

    def draw(self, block: int, line: int, laid: Any) -> Line:
        """A line: the number of its first token, and tokens."""
        row = block // self._parts
        if laid == _HEAD:
            return [StyledText(shortened(self._heading(row), self.text_width), looks.BOLD)]
        placed, stretch, first = laid
        number = str(placed[0].token) if placed else ""
        pieces = [StyledText(number.rjust(self.number_width - 1) + " ", looks.DIM)]
        x = 0
        for cell in placed:
            if cell.x > x:
                pieces.append(StyledText(" " * (cell.x - x)))
            pieces.append(StyledText(cell.text, self._style(row, cell, stretch, first)))
            x = cell.x + cell.width
        return pieces

    def on_resize(self, _: events.Resize) -> None:
        """The other side's lines may have another length, too."""
        if self.twin is not None:
            self.twin.forget()

    def settle(self) -> None:
        """Keep the cursor in sight."""
        if self.block_count():
            self.bring(self.place(*self.cursor))

    def go(self, row: int, token: int) -> None:
        """Put the cursor on a token, or on the nearest that there is."""
        self.cursor = (max(0, min(row, self.view.rows - 1)), max(0, min(token, self.view.length - 1)))
        self.settle()
        self.post_message(self.Moved(self))

    def place(self, row: int, token: int) -> Position:
        """Where a token stands among the lines."""
        block = row * self._parts + token // STRETCH
        lines = [laid[0] if laid != _HEAD else () for laid in self.lines_of(block)]
        return block, line_of(lines, token)

    def action_move(self, tokens: int) -> None:
        """To a neighbouring token, over the ends of rows."""
        flat = self.cursor[0] * self.view.length + self.cursor[1] + tokens
        flat = max(0, min(flat, self.view.rows * self.view.length - 1))
        self.go(*divmod(flat, self.view.length))

    def action_line(self, lines: int) -> None:
        """To the token above or below."""
        block, line = self.place(*self.cursor)
        x = next((e.x for e in self.lines_of(block)[line][0] if e.token == self.cursor[1] and not e.mark), 0)
        token = None
        at, before = (block, line), None
        while token is None and at != before:
            before, at = at, moved(at, lines, blocks=self.block_count(), height=self.height_of)
            laid = self.lines_of(at[0])[at[1]]
            token = None if laid == _HEAD else nearest(laid[0], x)
        if token is not None:
            self.go(at[0] // self._parts, token)

    def action_page(self, pages: int) -> None:
        """A screen further; the cursor goes along."""
        page = max(1, self.size.height - 1)
        self.top = moved(self.top, pages * page, blocks=self.block_count(), height=self.height_of)
        self.scroll_lines(0)
        at = moved(self.place(*self.cursor), pages * page, blocks=self.block_count(), height=self.height_of)
        laid = self.lines_of(at[0])[at[1]]
        if laid == _HEAD or not laid[0]:
            at = moved(at, 1, blocks=self.block_count(), height=self.height_of)
            laid = self.lines_of(at[0])[at[1]]
        if laid != _HEAD and laid[0]:
            self.go(at[0] // self._parts, laid[0][0].token)

    def action_edge(self, token: int) -> None:
        """To the first or the last token of the row."""
        self.go(self.cursor[0], token if token >= 0 else self.view.length - 1)

    def action_row(self, rows: int) -> None:
        """To the beginning of another row."""
        self.go(self.cursor[0] + rows, 0)

    def cycle_colour(self) -> str:
        """Colour by the next thing; its name."""
        self.by += 1
        self.forget()
        self.settle()
        return self.mode

    def cycle_written(self) -> str:
        """Write tokens otherwise: text, ids, both, exact bytes; its name."""
        self.written = (self.written + 1) % len(WRITTEN)
        self.forget()
        self.settle()
        return WRITTEN[self.written]

    def legend(self) -> Line:
        """What colours mean."""
        mode = self.mode
        if not self.colours:
            return [StyledText("|…|", looks.MARK), StyledText(f" {mode}")]
        if mode == "loss":
            shown = [
                ("loss", looks.hue("green", odd=False, colours=True)),
                ("none", looks.quiet(odd=False, colours=True)),
            ]
        elif mode == "source":
            shown = [
                (source.alias, looks.hue(looks.HUES[n % len(looks.HUES)], odd=False, colours=True))
                for n, source in enumerate(self.view.sources)
            ]
        elif mode == "segment":
            shown = [
                (str(n + 1), looks.hue(name, odd=False, colours=True)) for n, name in enumerate(looks.HUES)
            ]
        else:
            shown = [
                (word, looks.hue(name, odd=False, colours=True))
                for word, name in zip(("low", "", "", "", "high"), looks.HEAT, strict=True)
            ]
        return [
            StyledText(f"{mode}: "),
            *(StyledText(f"{word} " if word else "· ", style) for word, style in shown),
        ]

    def _heading(self, row: int) -> str:
        documents = self.view.documents.of_row(row)
        used = sum(document.stop - document.at for document in documents)
        words = [f"── row {row}", f"{len(documents)} document{'s' * (len(documents) != 1)}"]
        if "loss_mask" in self.view.arrays:
            loss = int((np.asarray(self.view.arrays["loss_mask"])[row] != 0).sum())
            words.append(f"{loss:,} of {self.view.length:,} tokens in the loss")
        if documents and used < self.view.length:
            words.append(f"{self.view.length - used:,} padding")
        return " · ".join(words)

    def _stretch(self, view: BatchView, row: int, first: int) -> RowStretch:
        window = view.window((row, row + 1), (first, first + STRETCH), joined=self.written != _EXACT)
        if not window.columns["tokens"].size:
            return RowStretch([], np.zeros(0, np.uint8), np.zeros(0), np.zeros(0))
        texts = window.texts()[0]
        if self.written in (_IDS, _BOTH):
            ids = window.columns["tokens"][0].tolist()
            texts = (
                [f"{number} " for number in ids]
                if self.written == _IDS
                else [f"{text}‹{number}› " for text, number in zip(texts, ids, strict=True)]
            )
        columns = {name: values[0] for name, values in window.columns.items()}
        segments = columns.get("segments", np.zeros(len(texts), np.int32))
        name = {"segment": "segments", "loss": "loss_mask", "source": "sources"}.get(self.mode, self.mode)
        values = columns.get(name, segments)
        return RowStretch(texts, columns["kinds"], values, segments)

    def _marks(self, stretch: RowStretch, row: int, first: int) -> dict[int, str]:
        """Without colours: what is written before a token whose value differs from the one before."""
        if self.differing is not None:
            return {first + at: "≠" for at in range(len(stretch.texts)) if self._differs(row, first + at)}
        marks, before = {}, None
        for at, value in enumerate(stretch.values.tolist()):
            if value != before:
                marks[first + at] = f"|{self._word(value)}|"
            before = value
        return marks

    def _word(self, value: Any) -> str:
        mode = self.mode
        if mode == "loss":
            return "loss" if value else "no loss"
        if mode == "source":
            return "padding" if value == NO_SOURCE else self.view.sources[value].alias
        if mode == "segment":
            return str(value) if value else "padding"
        return f"{value:.3g}"

    def _differs(self, row: int, token: int) -> bool:
        table = self.differing
        if table is None:
            return False
        return row >= table.shape[0] or token >= table.shape[1] or bool(table[row, token])

    def _style(self, row: int, placed: Placed, stretch: RowStretch, first: int) -> Style:
        if placed.mark:
            return looks.MARK
        at, token = placed.token - first, placed.token
        if (row, token) == self.cursor:
            return looks.CURSOR
        if self._differs(row, token):
            return looks.different(colours=self.colours)
        if token in self.matches.get(row, ()):
            return looks.found(colours=self.colours)
        kind = int(stretch.kinds[at])
        style = self._value_style(stretch.values[at], kind, odd=bool(token % 2))
        if kind == TokenKind.SPECIAL:
            return style + Style(bold=True, underline=self.colours)
        if kind == TokenKind.UNKNOWN:
            return looks.problem(colours=self.colours)
        return style

    def _value_style(self, value: Any, kind: int, *, odd: bool) -> Style:
        mode = self.mode
        if kind == TokenKind.PADDING or (mode == "loss" and not value):
            return looks.quiet(odd=odd, colours=self.colours)
        if mode == "loss":
            return looks.hue("green", odd=odd, colours=self.colours)
        if mode == "segment":
            name = looks.HUES[(int(value) - 1) % len(looks.HUES)]
        elif mode == "source":
            name = looks.HUES[int(value) % len(looks.HUES)]
        else:
            name = looks.HEAT[self._level(float(value))]
        return looks.hue(name, odd=odd, colours=self.colours)

    def _level(self, value: float) -> int:
        """Which fifth of a column's range a value lies in."""
        low, high = self._range()
        if not high > low or not np.isfinite(value):
            return 0
        return max(0, min(len(looks.HEAT) - 1, int((value - low) / (high - low) * len(looks.HEAT))))

    def _range(self) -> tuple[float, float]:
        key = (id(self.view), self.mode)
        if getattr(self, "_range_of", None) != key:
            values = np.asarray(self.view.arrays[self.mode], dtype=np.float64)
            finite = values[np.isfinite(values)]
            self._range_found = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
            self._range_of = key
        return self._range_found
