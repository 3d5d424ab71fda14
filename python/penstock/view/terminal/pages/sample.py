"""One sample with all of its fields, whether a row of a version or a record of a batch."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol

from textual.binding import Binding, BindingType
from textual.widget import Widget

from penstock.view.address import Address, StreamAddress, VersionAddress, at
from penstock.view.model.fields import TEXT_MAX, FieldView
from penstock.view.model.records import RecordView
from penstock.view.model.rows import VersionView
from penstock.view.terminal.overlay import Lines
from penstock.view.terminal.page import Page, titled
from penstock.view.terminal.text.field_lines import field_lines
from penstock.view.terminal.text.styled_line import Line

#: Text of a field that is shown, at most.
_TEXT_LIMIT = 2_000_000


class FieldSource(Protocol):
    """Things with fields, by number."""

    count: int

    def address(self, number: int) -> Address:
        """Its address."""

    def read(self, number: int, text_max: int) -> tuple[str, Sequence[FieldView]]:
        """Where it is, in words, and its fields; called in a thread."""


class VersionSamples:
    """Rows of a version."""

    def __init__(self, view: VersionView) -> None:
        self._view = view
        self.count = view.rows

    def address(self, number: int) -> VersionAddress:
        """The row's."""
        return VersionAddress(self._view.version.address, number)

    def read(self, number: int, text_max: int) -> tuple[str, Sequence[FieldView]]:
        """A row."""
        row = self._view.row(number, text_max=text_max)
        span = "" if row.byte_range is None else f", bytes {row.byte_range[0]}–{row.byte_range[1]}"
        return f"{row.shard}, its row {row.place}{span}", row.fields


class BatchSamples:
    """Records of a batch."""

    def __init__(self, view: RecordView) -> None:
        self._view = view
        self.count = view.rows

    def address(self, number: int) -> StreamAddress:
        """The record's."""
        address = self._view.address
        assert not isinstance(address, VersionAddress)
        return at(address, row=number)

    def read(self, number: int, text_max: int) -> tuple[str, Sequence[FieldView]]:
        """A record."""
        origins = self._view.origin(number)
        place = f"from {origins[0].version}/row/{origins[0].sample}" if origins else "padding"
        return place, self._view.fields(number, text_max=text_max)


class SamplePage(Page):
    """One sample with all of its fields."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_square_bracket,n", "step(1)", "next row"),
        Binding("left_square_bracket,p", "step(-1)", "row before", show=False),
        Binding("m", "more", "more of cut text"),
    ]
    STATUS = False
    GO = "row or address"

    def __init__(self, samples: FieldSource, number: int) -> None:
        super().__init__()
        self._samples = samples
        self._number = number
        self._text_max = TEXT_MAX
        self._place = ""
        self.content = Lines()

    @property
    def address(self) -> Address:
        """Its own."""
        return self._samples.address(self._number)

    def body(self) -> Iterator[Widget]:
        """The fields."""
        yield self.content

    def on_mount(self) -> None:
        """Read it."""
        self._read()

    def heading(self) -> Line:
        """Which it is, and where it lies."""
        return titled(str(self.address), self._place, self.size.width)

    def action_step(self, rows: int) -> None:
        """To a neighbour."""
        if not 0 <= self._number + rows < self._samples.count:
            self.say(f"row {self._number:,} is the {'last' if rows > 0 else 'first'}")
            return
        self._number += rows
        self._text_max = TEXT_MAX
        self._read()

    def action_more(self) -> None:
        """Ten times as much of long texts."""
        if self._text_max >= _TEXT_LIMIT:
            self.say(
                f"no more than {_TEXT_LIMIT:,} characters are shown here; `y` has a command that prints all"
            )
            return
        self._text_max = min(_TEXT_LIMIT, self._text_max * 10)
        self._read()

    def go(self, address: Address) -> None:
        """Another row of the same version is near."""
        here = self.address
        number = _row_of_same(here, address)
        if number is not None:
            if number >= self._samples.count:
                self.say(f"there is no row {number:,}: the version has {self._samples.count:,}", problem=True)
                return
            self._number = number
            self._read()
            return
        super().go(address)

    def _read(self) -> None:
        number, text_max = self._number, self._text_max
        self.ask("sample", lambda: self._samples.read(number, text_max), self._show)

    def _show(self, sample: tuple[str, Sequence[FieldView]]) -> None:
        self._place, fields = sample
        self.content.replace(field_lines(fields))
        self.retitle()


def _row_of_same(here: Address, there: Address) -> int | None:
    """The row of an address, if it is one of the same version."""
    if (
        isinstance(here, VersionAddress)
        and isinstance(there, VersionAddress)
        and here.version == there.version
    ):
        return there.row
    return None
