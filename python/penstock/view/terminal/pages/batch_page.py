"""The batch page: tokens of a step as the model gets them; steps and lanes one key away."""

from collections.abc import Iterator
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from penstock.data.feed.lane import Lane
from penstock.view.address import Address, Place, RunAddress, StreamAddress, VersionAddress, at
from penstock.view.model.tokens.batch import BatchView
from penstock.view.model.tokens.samples import Samples
from penstock.view.opener import AnyBatch, OpenedStream, check_place
from penstock.view.terminal.grid import TokenGrid
from penstock.view.terminal.page import Page, tail
from penstock.view.terminal.pane import Bar
from penstock.view.terminal.text import looks
from penstock.view.terminal.text.search import Match, find
from penstock.view.terminal.text.status import token_lines
from penstock.view.terminal.text.styled_line import Line, StyledText


class StreamPage(Page):
    """A page of a step of a stream: steps, lanes, and a difference to another."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_square_bracket", "step(1)", "next step"),
        Binding("left_square_bracket", "step(-1)", "step before", show=False),
        Binding("greater_than_sign", "lane(1)", "next lane", show=False),
        Binding("less_than_sign", "lane(-1)", "lane before", show=False),
        Binding("f", "newest", "newest step of a run", show=False),
    ]
    GO = "step=…,lane=…,row=…,token=… or address"

    def __init__(self, stream: OpenedStream, batch: AnyBatch) -> None:
        super().__init__()
        self.stream = stream
        self.shown = batch

    @property
    def here(self) -> StreamAddress:
        """The address of the batch."""
        address = self.shown.address
        assert not isinstance(address, VersionAddress)
        return address

    @property
    def lane(self) -> Lane:
        """The lane that is shown."""
        return self.here.place.lane or Lane()

    def heading(self) -> Line:
        """Step, lane, size and digest."""
        batch = self.shown
        size = f"{batch.rows}×{batch.length}" if isinstance(batch, BatchView) else f"{batch.rows} records"
        words = f"step {batch.step}  lane {self.lane}  {size}  {batch.digest[:8]}  "
        return [
            StyledText(words, looks.BOLD),
            StyledText(tail(str(self.here), self.size.width - len(words)), looks.DIM),
        ]

    def show(self, batch: AnyBatch, row: int | None = None, token: int | None = None) -> None:
        """Show another batch of the stream."""
        raise NotImplementedError

    def action_step(self, steps: int) -> None:
        """Another step, at the same place."""
        wanted = self.shown.step + steps
        if wanted < 0:
            self.say("step 0 is the first")
            return
        self._fetch(wanted, self.lane)

    def action_newest(self) -> None:
        """The step that a run has come to: what its ranks have in their hands, or the last that is on record."""
        stream = self.stream
        if not isinstance(stream.address, RunAddress):
            self.say("a recipe has no newest step; only a run has")
            return
        lane = self.lane

        def work() -> AnyBatch:
            newest = self.view_app.opener.open(at(stream.address, step=None))
            assert isinstance(newest, OpenedStream)
            return stream.batch(newest.step, lane)

        self.ask("batch", work, self.show)

    def action_lane(self, lanes: int) -> None:
        """Another lane of the step."""
        lane = self.lane
        if lane.of == 1:
            self.say("all rows of the step are shown; `g lane=0/8` shows those of a lane")
            return
        self._fetch(self.shown.step, Lane((lane.number + lanes) % lane.of, of=lane.of))

    def go(self, address: Address) -> None:
        """Another place of the same stream is near."""
        if isinstance(address, VersionAddress) or at(
            address, step=None, lane=None, row=None, token=None
        ) != at(self.here, step=None, lane=None, row=None, token=None):
            super().go(address)
            return
        place = address.place
        step = self.shown.step if place.step is None else place.step
        self._fetch(step, place.lane or Lane(), place.row, place.token)

    def _fetch(self, step: int, lane: Lane, row: int | None = None, token: int | None = None) -> None:
        def work() -> AnyBatch:
            batch = self.stream.batch(step, lane)
            check_place(batch, Place(row=row, token=token))
            return batch

        self.ask("batch", work, lambda batch: self.show(batch, row, token))


class BatchPage(StreamPage):
    """A batch of tokens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", priority=True),
        Binding("n", "again(1)", "next match", show=False),
        Binding("N,shift+n", "again(-1)", "match before", show=False),
        Binding("c", "colour", "colour"),
        Binding("i", "ids", "ids"),
        Binding("o,enter", "origin", "origin"),
        Binding("d", "difference", "diff", priority=True),
    ]

    def __init__(self, stream: OpenedStream, batch: BatchView) -> None:
        super().__init__(stream, batch)
        self.samples = Samples(stream.plan, stream.vocabularies)
        self._wanted = ""

    @property
    def view(self) -> BatchView:
        """The batch."""
        assert isinstance(self.shown, BatchView)
        return self.shown

    @property
    def address(self) -> StreamAddress:
        """That of the token under the cursor."""
        row, token = self.grid.cursor
        return at(self.here, row=row, token=token)

    def body(self) -> Iterator[Widget]:
        """The grid."""
        self.grid = TokenGrid(self.view, colours=self.colours)
        yield self.grid

    def on_mount(self) -> None:
        """Go to where the address points."""
        place = self.stream.address.place
        self.call_after_refresh(self.grid.go, place.row or 0, place.token or 0)

    def show(self, batch: AnyBatch, row: int | None = None, token: int | None = None) -> None:
        """Show another batch; the cursor keeps its place unless another is given."""
        assert isinstance(batch, BatchView)
        self.shown = batch
        if row is not None:
            self.grid.cursor = (row, token or 0)
        self.grid.look_at(batch)
        self.retitle()

    def on_token_grid_moved(self, _: TokenGrid.Moved) -> None:
        """Say what the cursor is on."""
        view, cursor = self.view, self.grid.cursor
        if view.rows and view.length:
            self.ask("token", lambda: view.token(*cursor), self._status)

    def action_colour(self) -> None:
        """Colour by the next thing."""
        self.grid.cycle_colour()
        self._said = [StyledText("colour by "), *self.grid.legend()]
        self.retitle()

    def action_ids(self) -> None:
        """Text, ids, or both."""
        self.say(f"tokens are shown as {self.grid.cycle_written()}")

    def action_search(self) -> None:
        """Ask what to look for."""
        self.ask_text("search (text, or id=…): ", self._search, self._wanted)

    def action_again(self, direction: int) -> None:
        """Look for the same again."""
        if not self._wanted:
            self.say("nothing was looked for yet; / begins a search")
            return
        self._look(backward=direction < 0)

    def action_origin(self) -> None:
        """The sample beside its tokens."""
        from penstock.view.terminal.pages.origin import OriginPage, sample_of

        view, cursor = self.view, self.grid.cursor
        self.ask(
            "open",
            lambda: sample_of(self.samples, view, cursor),
            lambda sample: self.app.push_screen(OriginPage(sample)),
        )

    def action_difference(self) -> None:
        """Ask for the other side."""
        self.ask_text("diff with (step=… or address): ", self._difference)

    def _difference(self, text: str) -> None:
        from penstock.view.terminal.destination import target
        from penstock.view.terminal.pages.diff import DiffPage, other_side

        here, view = self.here, self.view
        self.ask(
            "open",
            lambda: other_side(self.view_app.opener, target(here, text)),
            lambda other: self.app.push_screen(DiffPage(view, other)),
        )

    def _search(self, text: str) -> None:
        self._wanted = text
        self._look(backward=False)

    def _look(self, *, backward: bool) -> None:
        view, wanted, cursor = self.view, self._wanted, self.grid.cursor
        self.ask("search", lambda: find(view, wanted, cursor, backward=backward), self._show_match)

    def _show_match(self, match: Match | None) -> None:
        if match is None:
            self.grid.matches = {}
            self.grid.refresh()
            self.say(f"“{self._wanted}” is nowhere in this batch")
            return
        self.grid.matches = {match.row: set(match.all_of_row)}
        self.grid.go(match.row, match.tokens[0])
        if match.around:
            self.say("the search went around the end of the batch")

    def _status(self, detail: dict[str, Any]) -> None:
        self.query_one("#status", Bar).show(*token_lines(detail))
