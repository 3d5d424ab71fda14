"""A real Chromium for tests, and pages that are watched.

Every page opened here is watched: a message on the console, an error in a script, a violation of the content security policy
or a request to another host fails the test, unless the test expects it. Requests to other hosts are stopped as well.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, Dialog, Page, Route, expect, sync_playwright

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]

PATIENCE_MS = 20_000
"""For a condition to come true on a busy machine; nothing waits that long when all is well."""


@dataclass
class Watched:
    """A page, and everything about it that a reader should never get to see."""

    page: Page
    #: The printed address, with its token.
    address: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    @property
    def base(self) -> str:
        """The address without the token."""
        return self.address.partition("?")[0]

    def open(self, route: str = "") -> Page:
        """Open a page by its route, as a pasted link does."""
        self.page.goto("about:blank")  # so that a change of the fragment alone is a new visit as well
        self.page.goto(self.address.partition("#")[0] + route)
        return self.page

    def dismiss(self, dialog: Dialog) -> None:
        """A dialog is never ours."""
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def check_host(self, route: Route) -> None:
        """Let a request to our own server pass, and stop every other."""
        url = route.request.url
        self.asked.append(url)
        if url.split("/", 3)[:3] == self.address.split("/", 3)[:3]:
            route.fallback()
        else:
            self.complaints.append(f"asked another host: {url}")
            route.abort()


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """A browser."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@contextmanager
def watching(
    browser: Browser, address: str, *, width: int = 1280, height: int = 800, scheme: str = "light"
) -> Iterator[Watched]:
    """A page of its own context; complaints fail the test on leaving."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # type: ignore[arg-type]
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.add_init_script(
        "addEventListener('securitypolicyviolation', e => console.error('policy: ' + e.violatedDirective))"
    )
    seen = Watched(context.new_page(), address)
    seen.page.set_default_timeout(PATIENCE_MS)
    context.route("**/*", seen.check_host)
    seen.page.on("console", lambda message: seen.complaints.append(f"console: {message.text}"))
    seen.page.on("pageerror", lambda error: seen.complaints.append(f"script: {error}"))
    seen.page.on("dialog", seen.dismiss)
    yield seen
    context.close()
    assert seen.complaints == []
