"""The terminal view: versions, rows, samples and batches on 80 columns, over ssh, with the keyboard alone.

Everything shown comes from ``penstock.view.model``. A *page* is a screen of one thing; a *pane* draws lines and asks only for those
that can be seen; what takes time is done by a *loader* in threads, so that keys always answer. Text of data reaches the terminal
through one function (``drawing.cell_text``), which lets no control character pass. Importing this package imports no Textual.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.view.address import Address
    from penstock.view.opener import Opener


def run(address: "Address | None", opening: "Callable[[Callable[[str, int, int], None]], Opener]") -> int:
    """Show what stands at an address (or all datasets) until the person leaves. What cannot be opened is raised.

    ``opening`` makes what opens addresses; it is called in a thread, with what is told how far a preparation is.
    """
    from penstock.view.terminal.app import ViewApp

    app = ViewApp(address, opening)
    # The mouse stays with the terminal, so that its own selecting and copying work.
    app.run(mouse=False)
    if isinstance(app.problem, OSError):
        raise UsageError(f"cannot read what stands there: {app.problem}") from app.problem
    if app.problem is not None:
        raise app.problem
    return app.return_code or 0
