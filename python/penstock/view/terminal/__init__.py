"""The terminal view: versions, rows, samples and batches on 80 columns, over ssh, with the keyboard alone.

Everything shown comes from ``penstock.view.model``. A *page* is a screen of one thing; a *pane* draws lines and asks only for those
that can be seen; what takes time is done by a *loader* in threads, so that keys always answer. Text of data reaches the terminal
through one function (``drawing.cell_text``), which lets no control character pass. Importing this package imports no Textual.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.registry import Registry
    from penstock.view.address import Address


def run(
    address: "Address | None",
    *,
    registry: "Registry",
    runs: Sequence[Path] = (),
    tokenizer: Path | None = None,
) -> int:
    """Show what stands at an address (or all datasets) until the person leaves. What cannot be opened is raised."""
    from penstock.view.terminal.running import made

    app = made(address, registry=registry, runs=runs, tokenizer=tokenizer)
    # The mouse stays with the terminal, so that its own selecting and copying work.
    app.run(mouse=False)
    if isinstance(app.problem, OSError):
        raise UsageError(f"cannot read what stands there: {app.problem}") from app.problem
    if app.problem is not None:
        raise app.problem
    return app.return_code or 0
