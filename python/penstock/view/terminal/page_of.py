"""Which pages show what stands at an address."""

from collections.abc import Callable
from functools import partial

from penstock.view.address import Address
from penstock.view.model.tokens.batch import BatchView
from penstock.view.opener import OpenedVersion, Opener, check_place
from penstock.view.terminal.page import Page
from penstock.view.terminal.pages.batch_page import BatchPage
from penstock.view.terminal.pages.browse import DatasetsPage, RowsPage
from penstock.view.terminal.pages.records_page import RecordsPage
from penstock.view.terminal.pages.sample import SamplePage, VersionSamples


def pages_of(opener: Opener, address: Address | None) -> list[Callable[[], Page]]:
    """Makers of pages, the last on top. All that takes time is done here, so that this is called in a thread."""
    if address is None:
        return [partial(DatasetsPage, opener.registry.datasets(), opener.registry.url)]
    opened = opener.open(address)
    if isinstance(opened, OpenedVersion):
        rows: Callable[[], Page] = partial(RowsPage, opened, opened.chosen_row or 0)
        if opened.chosen_row is None:
            return [rows]
        # A row that is not there is said before anything is shown.
        opened.row(opened.chosen_row)
        return [rows, partial(SamplePage, VersionSamples(opened), opened.chosen_row)]
    batch = opened.batch()
    check_place(batch, opened.address.place)
    if isinstance(batch, BatchView):
        return [partial(BatchPage, opened, batch)]
    return [partial(RecordsPage, opened, batch)]
