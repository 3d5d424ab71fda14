"""The page of a batch of records: rows on a line each; one of them opens with all of its fields."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from penstock.view.address import StreamAddress, at
from penstock.view.model.records import RecordView
from penstock.view.opener import AnyBatch, OpenedStream
from penstock.view.terminal.destination import target
from penstock.view.terminal.overlay import Overlay
from penstock.view.terminal.paged_list import PAGE, Listing
from penstock.view.terminal.pages.batch_page import StreamPage
from penstock.view.terminal.pages.sample import BatchSamples, SamplePage
from penstock.view.terminal.text import looks
from penstock.view.terminal.text.difference_lines import differences
from penstock.view.terminal.text.field_lines import one_line
from penstock.view.terminal.text.styled_line import Line, StyledText

_SHORT = 200


class RecordsPage(StreamPage):
    """A batch of records, one line per record."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("d", "difference", "diff", priority=True)]
    STATUS = False

    def __init__(self, stream: OpenedStream, batch: RecordView) -> None:
        super().__init__(stream, batch)
        self.listing = Listing(batch.rows)
        self.listing.cursor = max(0, min(stream.address.place.row or 0, batch.rows - 1))

    @property
    def records(self) -> RecordView:
        """The batch."""
        assert isinstance(self.shown, RecordView)
        return self.shown

    @property
    def address(self) -> StreamAddress:
        """That of the chosen row."""
        return at(self.here, row=self.listing.cursor)

    def body(self) -> Iterator[Widget]:
        """The list."""
        yield self.listing

    def show(self, batch: AnyBatch, row: int | None = None, token: int | None = None) -> None:
        """Show another batch."""
        assert isinstance(batch, RecordView)
        self.shown = batch
        self.listing.renew(batch.rows)
        self.listing.go(self.listing.cursor if row is None else row)
        self.retitle()

    def on_listing_wanted(self, message: Listing.Wanted) -> None:
        """Fetch rows."""
        page, view = message.page, self.records
        stop = min(view.rows, (page + 1) * PAGE)
        self.ask(
            f"page {page}",
            lambda: _lines(view, page * PAGE, stop),
            lambda lines: self.listing.fetched(page, lines),
        )

    def on_listing_chosen(self, message: Listing.Chosen) -> None:
        """All fields of a row."""
        self.app.push_screen(SamplePage(BatchSamples(self.records), message.number))

    def action_difference(self) -> None:
        """Ask for the other batch."""
        self.ask_text("diff with (step=… or address): ", self._difference)

    def _difference(self, text: str) -> None:
        opener, view, here = self.view_app.opener, self.records, self.here
        self.ask(
            "open",
            lambda: differences(opener, view, target(here, text)),
            lambda lines: self.app.push_screen(Overlay("difference", lines)),
        )


def _lines(view: RecordView, first: int, stop: int) -> Sequence[Line]:
    lines: list[Line] = []
    for row in range(first, stop):
        origins = view.origin(row)
        place = f"{origins[0].version}/row/{origins[0].sample}" if origins else "padding"
        lines.append(
            [
                StyledText(f"{row:>4} ", looks.DIM),
                StyledText(f"{place}  "),
                *one_line(view.fields(row, text_max=_SHORT)),
            ]
        )
    return lines
