"""Drives the terminal view without a terminal: keys in, text and styles out."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rich.style import Style
from textual import events
from textual.pilot import Pilot

from penstock.view.address import parse
from penstock.view.opener import Opener
from penstock.view.terminal.app import OpeningPage, ViewApp
from penstock.view.terminal.grid import TokenGrid
from penstock.view.terminal.page import Page
from penstock.view.terminal.pages.batch_page import BatchPage
from tests.view.library import Library

#: Looks at a page before a test gives up.
_LOOKS_MAX = 2000


class Seen:
    """A running view."""

    def __init__(self, app: ViewApp, pilot: "Pilot[int]") -> None:
        self.app = app
        self.pilot = pilot

    async def settle(self) -> None:
        """Until nothing is awaited: all messages were handled, and all threads came back."""
        quiet = 0
        for _ in range(_LOOKS_MAX):
            await self.pilot.pause()
            screen = self.app.screen
            busy = isinstance(screen, OpeningPage) or (isinstance(screen, Page) and not screen.loader.idle)
            quiet = 0 if busy and self.app.is_running else quiet + 1
            if quiet == 3 or not self.app.is_running:
                return
            await self.pilot.pause(0.002 if busy else None)
        raise AssertionError(f"{self.app.screen} is still waiting")

    async def press(self, *keys: str) -> None:
        """Press keys, and wait for what they do."""
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, key: str, text: str) -> None:
        """Open a prompt, paste a text as terminals do, and send it."""
        await self.press(key)
        self.app.post_message(events.Paste(text))
        await self.press("enter")

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return [strip.text for strip in self.strips]

    @property
    def strips(self) -> list[Any]:
        """What is on the screen, with styles."""
        return self.app.screen._compositor.render_strips()

    @property
    def text(self) -> str:
        """What is on the screen, as one text."""
        return "\n".join(self.lines)

    def style_of(self, text: str, line: int | None = None) -> Style:
        """The style of the first place that shows a text."""
        for strip in self.strips if line is None else self.strips[line : line + 1]:
            at = strip.text.find(text)
            if at >= 0:
                for segment in strip:
                    if at < len(segment.text):
                        return segment.style or Style.null()
                    at -= len(segment.text)
        raise AssertionError(f"{text!r} is not on the screen:\n{self.text}")

    def reversed_text(self) -> list[str]:
        """What is drawn reversed: the cursor, and marks."""
        return [s.text for strip in self.strips for s in strip if s.style is not None and s.style.reverse]


def look(
    library: Library,
    address: str | None,
    script: Callable[[Seen], Awaitable[None]],
    *,
    size: tuple[int, int] = (80, 24),
    taps: Path | None = None,
) -> ViewApp:
    """Open an address and do what a script says."""

    async def main() -> ViewApp:
        app = ViewApp(
            None if address is None else parse(address),
            lambda watch: Opener(library.registry, watch=watch, taps=taps),
        )
        async with app.run_test(size=size) as pilot:
            seen = Seen(app, pilot)
            await seen.settle()
            await script(seen)
        return app

    return asyncio.run(main())


def grid_of(seen: Seen) -> TokenGrid:
    """The grid of the batch page."""
    assert isinstance(seen.app.screen, BatchPage), seen.text
    return seen.app.screen.grid
