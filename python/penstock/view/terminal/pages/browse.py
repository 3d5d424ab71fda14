"""Browsing: datasets, their versions, and the rows of a version, each a list that is fetched as one scrolls."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from penstock.registry import Version
from penstock.view.address import Address, VersionAddress, parse
from penstock.view.model.rows import VersionView
from penstock.view.terminal.background import Loaded
from penstock.view.terminal.overlay import Overlay
from penstock.view.terminal.page import Page, titled
from penstock.view.terminal.paged_list import PAGE, Listing
from penstock.view.terminal.pages.sample import SamplePage, VersionSamples
from penstock.view.terminal.text import looks
from penstock.view.terminal.text.difference_lines import differences
from penstock.view.terminal.text.field_lines import one_line
from penstock.view.terminal.text.styled_line import Line, StyledText


class ListPage(Page):
    """A page with one list."""

    STATUS = False

    def __init__(self, count: int) -> None:
        super().__init__()
        self.listing = Listing(count)

    def body(self) -> Iterator[Widget]:
        """The list."""
        yield self.listing

    def lines(self, first: int, stop: int) -> Sequence[Line]:
        """Some lines of the list; called in a thread."""
        raise NotImplementedError

    def on_listing_wanted(self, message: Listing.Wanted) -> None:
        """Fetch a page of the list."""
        page = message.page
        stop = min(self.listing.count, (page + 1) * PAGE)
        self.ask(
            f"page {page}",
            lambda: self.lines(page * PAGE, stop),
            lambda lines: self.listing.fetched(page, lines),
        )

    def on_loaded(self, message: Loaded) -> None:
        """Lines that could not be fetched say so; why is said at the foot."""
        kind, _, number = message.request.slot.partition(" ")
        if message.problem is not None and kind == "page":
            first = int(number) * PAGE
            lost = range(first, min(self.listing.count, first + PAGE))
            self.listing.fetched(
                int(number), [[StyledText(f"{row:>7} could not be read", looks.DIM)] for row in lost]
            )

    def on_listing_moved(self) -> None:
        """The address may be another."""
        self.retitle()


class DatasetsPage(ListPage):
    """All datasets of a registry, or those whose names have some words."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "search", "search", priority=True)]

    def __init__(self, names: Sequence[str], place: str) -> None:
        super().__init__(len(names))
        self._all = names
        self._names = names
        self._place = place
        self._wanted = ""

    def heading(self) -> Line:
        """Where they are."""
        counted = f"{len(self._all):,} in {self._place}"
        if self._wanted:
            counted = f"{len(self._names):,} with “{self._wanted}” of {counted}"
        return titled("datasets", counted, self.size.width)

    def lines(self, first: int, stop: int) -> Sequence[Line]:
        """Names."""
        return [[StyledText(name)] for name in self._names[first:stop]]

    def action_search(self) -> None:
        """Ask what names should have."""
        self.ask_text("search (words of names; nothing lists all): ", self._search, self._wanted)

    def _search(self, text: str) -> None:
        words = text.lower().split()
        names = [name for name in self._all if all(word in name.lower() for word in words)]
        if not names:
            self.say(f"no dataset has “{text}” in its name")
            return
        self._wanted, self._names = text.strip(), names
        self.listing.renew(len(names))
        self.listing.go(0)
        self.retitle()

    def on_listing_chosen(self, message: Listing.Chosen) -> None:
        """Its versions."""
        name = self._names[message.number]
        self.ask(
            "open",
            lambda: self.view_app.opener.registry.versions(name),
            lambda versions: self.app.push_screen(VersionsPage(name, versions)),
        )


class VersionsPage(ListPage):
    """All versions of a dataset, the newest first."""

    def __init__(self, name: str, versions: Sequence[Version]) -> None:
        super().__init__(len(versions))
        self._dataset = name
        self._versions = list(reversed(versions))

    @property
    def address(self) -> Address:
        """That of the chosen version."""
        return VersionAddress(self._versions[self.listing.cursor].address)

    def heading(self) -> Line:
        """Whose they are."""
        return titled(self._dataset, f"{len(self._versions)} versions", self.size.width)

    def lines(self, first: int, stop: int) -> Sequence[Line]:
        """Number, format and size."""
        return [
            [
                StyledText(f"{version.address:<16}", looks.BOLD),
                StyledText(
                    f" {version.rows:>13,} rows {version.bytes:>17,} bytes  {version.manifest.format}  {version.record.created[:16]}"
                ),
            ]
            for version in self._versions[first:stop]
        ]

    def on_listing_chosen(self, message: Listing.Chosen) -> None:
        """Its rows."""
        self.app.push_screen(RowsPage(VersionView(self._versions[message.number])))


class RowsPage(ListPage):
    """The rows of a version."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "versions", "versions", show=False),
        Binding("d", "difference", "diff", priority=True),
    ]
    GO = "row or address"

    def __init__(self, view: VersionView, row: int = 0) -> None:
        super().__init__(view.rows)
        self.view = view
        self.listing.cursor = max(0, min(row, view.rows - 1))

    @property
    def address(self) -> VersionAddress:
        """That of the chosen row."""
        return VersionAddress(self.view.version.address, self.listing.cursor if self.view.rows else None)

    def heading(self) -> Line:
        """Which version, and where in it."""
        facts = self.view.version
        more = (
            f"row {self.listing.cursor:,} of {self.view.rows:,}  {facts.manifest.format}  {facts.digest[:15]}"
        )
        return titled(facts.address, more, self.size.width)

    def lines(self, first: int, stop: int) -> Sequence[Line]:
        """Rows, on a line each."""
        return [
            [StyledText(f"{row.number:>7} ", looks.DIM), *one_line(row.fields)]
            for row in self.view.page(first, stop - first)
        ]

    def go(self, address: Address) -> None:
        """Another row of the same version is near."""
        if (
            isinstance(address, VersionAddress)
            and address.version == self.address.version
            and address.row is not None
        ):
            if address.row >= self.view.rows:
                self.say(f"there is no row {address.row:,}: the version has {self.view.rows:,}", problem=True)
                return
            self.listing.go(address.row)
            return
        super().go(address)

    def on_listing_chosen(self, message: Listing.Chosen) -> None:
        """The whole row."""
        self.app.push_screen(SamplePage(VersionSamples(self.view), message.number))

    def action_difference(self) -> None:
        """Ask for the other version."""
        self.ask_text("diff with (another version): ", self._difference)

    def _difference(self, text: str) -> None:
        opener, view = self.view_app.opener, self.view
        self.ask(
            "open",
            lambda: differences(opener, view, parse(text)),
            lambda lines: self.app.push_screen(Overlay("difference", lines)),
        )

    def action_versions(self) -> None:
        """The versions of the dataset."""
        name = self.view.version.name
        self.ask(
            "open",
            lambda: self.view_app.opener.registry.versions(name),
            lambda versions: self.app.push_screen(VersionsPage(name, versions)),
        )
