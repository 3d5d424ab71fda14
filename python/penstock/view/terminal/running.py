"""Runs the terminal view of an address, and ends with an exit code."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.view.address import Address
from penstock.view.terminal.app import ViewApp

if TYPE_CHECKING:
    from penstock.registry import Registry
    from penstock.view.opening import Opener


def made(
    address: Address | None, *, registry: "Registry", runs: Sequence[Path] = (), tokenizer: Path | None = None
) -> ViewApp:
    """The application, not yet running."""

    def opening(watch: Callable[[str, int, int], None]) -> "Opener":
        from penstock.view.opening import Opener

        return Opener(registry, runs=runs, tokenizer=tokenizer, watch=watch)

    return ViewApp(address, opening)
