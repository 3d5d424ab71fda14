"""Two batches beside each other: both sides have the same tokens on the same lines, so that they scroll as one."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from textual.binding import Binding, BindingType
from textual.widget import Widget

from penstock.errors import UsageError
from penstock.view.address import Address, VersionAddress, at
from penstock.view.model.tokens.batch import BatchView
from penstock.view.opener import OpenedVersion, Opener
from penstock.view.terminal.grid import TokenGrid
from penstock.view.terminal.page import Page, tail
from penstock.view.terminal.pages.origin import Sides
from penstock.view.terminal.pane import Bar
from penstock.view.terminal.text import looks
from penstock.view.terminal.text.styled_line import Line, StyledText
from penstock.view.wire.batch_answers import TokenDetail


def other_side(opener: Opener, address: Address) -> BatchView:
    """The batch of the other address; called in a thread."""
    opened = opener.open(address)
    if isinstance(opened, OpenedVersion):
        raise UsageError(
            "a batch can be compared with another batch only", hint="step=8, or recipe.toml#step=8"
        )
    batch = opened.batch()
    if not isinstance(batch, BatchView):
        raise UsageError("a batch of tokens and one of records have nothing that can be compared")
    return batch


def differing(one: BatchView, other: BatchView) -> npt.NDArray[np.bool_]:
    """Which tokens, or whether they count in the loss, differ; where one side has none, they do."""
    shape = (max(one.rows, other.rows), max(one.length, other.length))
    mask = np.ones(shape, dtype=np.bool_)
    both = (slice(0, min(one.rows, other.rows)), slice(0, min(one.length, other.length)))
    mask[both] = False
    for name in ("tokens", "loss_mask"):
        if name in one.arrays and name in other.arrays:
            sides = [np.asarray(view.arrays[name])[both] for view in (one, other)]
            mask[both] |= sides[0] != sides[1]
    return mask


class DiffPage(Page):
    """Two batches beside each other, line by line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "next(1)", "next difference"),
        Binding("N,shift+n,p", "next(-1)", "difference before", show=False),
        Binding("i", "ids", "ids", show=False),
        Binding("tab", "app.focus_next", "other pane", show=False),
    ]
    DEFAULT_CSS = "DiffPage > #sides { height: 1fr; } DiffPage #right { border-left: solid ansi_default; }"

    def __init__(self, one: BatchView, other: BatchView) -> None:
        super().__init__()
        self._views = (one, other)
        self._table = differing(one, other)
        self._places = np.flatnonzero(self._table)

    @property
    def address(self) -> Address:
        """That of the side one is in, at the cursor."""
        grid = self._focused()
        address = grid.view.address
        assert not isinstance(address, VersionAddress)
        row, token = grid.cursor
        return at(address, row=row, token=token)

    def heading(self) -> Line:
        """Both sides, and how much differs."""
        rows = int(self._table.any(axis=1).sum())
        words = f"{len(self._places):,} tokens in {rows:,} rows differ" if len(self._places) else "equal"
        half = max(8, (self.size.width - len(words) - 9) // 2)
        sides = [tail(str(view.address), half) for view in self._views]
        return [
            StyledText(sides[0], looks.BOLD),
            StyledText("  and  "),
            StyledText(sides[1], looks.BOLD),
            StyledText(f"  {words}"),
        ]

    def body(self) -> Iterator[Widget]:
        """Two grids."""
        left, right = (
            TokenGrid(view, colours=self.colours, id=name)
            for view, name in zip(self._views, ("left", "right"), strict=True)
        )
        for grid, twin in ((left, right), (right, left)):
            grid.twin, grid.differing = twin, self._table
        yield Sides([left], right, id="sides")

    def on_mount(self) -> None:
        """To the first difference."""
        self.query_one("#left").focus()
        self.call_after_refresh(self._begin)

    def on_token_grid_moved(self, message: TokenGrid.Moved) -> None:
        """Where one goes, the other goes."""
        for grid in self.query(TokenGrid):
            if grid is not message.grid and grid.cursor != message.grid.cursor:
                grid.cursor = message.grid.cursor
                grid.top = message.grid.top
                grid.settle()
        row, token = message.grid.cursor
        self.ask("token", lambda: [_side(view, row, token) for view in self._views], self._status)

    def action_next(self, direction: int) -> None:
        """To the next place that differs, or the one before."""
        grid = self._focused()
        flat = grid.cursor[0] * self._table.shape[1] + grid.cursor[1]
        at_ = int(np.searchsorted(self._places, flat, side="right" if direction > 0 else "left"))
        wanted = at_ if direction > 0 else at_ - 1
        if not 0 <= wanted < len(self._places):
            self.say("no further difference" if len(self._places) else "both sides are equal")
            return
        self._go_to(wanted)

    def action_ids(self) -> None:
        """Text, ids, or both."""
        for grid in self.query(TokenGrid):
            grid.cycle_written()

    def _begin(self) -> None:
        if len(self._places):
            self._go_to(0)
        else:
            self.query_one("#left", TokenGrid).go(0, 0)

    def _go_to(self, number: int) -> None:
        row, token = divmod(int(self._places[number]), self._table.shape[1])
        self._focused().go(row, token)

    def _focused(self) -> TokenGrid:
        focused = self.focused
        return focused if isinstance(focused, TokenGrid) else self.query_one("#left", TokenGrid)

    def _status(self, sides: list[TokenDetail | None]) -> None:
        lines = [_side_line(name, side) for name, side in zip(("left ", "right"), sides, strict=True)]
        self.query_one("#status", Bar).show(*lines)


def _side(view: BatchView, row: int, token: int) -> TokenDetail | None:
    return view.token(row, token) if row < view.rows and token < view.length else None


def _side_line(name: str, side: TokenDetail | None) -> Line:
    if side is None:
        return [StyledText(f"{name} has no such token", looks.DIM)]
    origin = side["origin"][0] if side["origin"] else None
    place = "padding" if origin is None else f"{origin['version']}/row/{origin['sample']}"
    loss = f"  loss {side['loss_mask']:g}" if "loss_mask" in side else ""
    return [
        StyledText(f"{name} row {side['row']} token {side['token']}  id ", looks.BOLD),
        StyledText(f"{side['id']}  “{side['text']}”{loss}  {place}"),
    ]
