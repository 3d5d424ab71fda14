"""The web pages in a real Chromium against a real server process.

Every page opened here is watched: a message on the console, an error in a script, a violation of the
content security policy or a request to another host fails the test, unless the test expects it.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, Route, expect, sync_playwright

from penstock import events
from penstock.view.web.server import STATIC

SERVE = """
import sys
from pathlib import Path
from penstock.view.web.server import serve
serve("127.0.0.1", 0, Path(sys.argv[1]), announce=lambda address: print(address, flush=True))
"""

# Like a proxy in front of many services: knows us by a prefix, strips it, and answers 404 beside it.
SERVE_UNDER_PREFIX = """
import socket, sys, uvicorn
from pathlib import Path
from penstock.view.web.server import create_app

app, prefix = create_app(events_directory=Path(sys.argv[1])), sys.argv[2]

async def proxy(scope, receive, send):
    if scope["type"] == "http" and not scope["path"].startswith(prefix + "/"):
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    if scope["type"] == "http":
        path = scope["path"].removeprefix(prefix)
        scope = {**scope, "path": path, "raw_path": path.encode()}
    await app(scope, receive, send)

listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}{prefix}/", flush=True)
uvicorn.Server(uvicorn.Config(proxy, log_level="warning", ws="none")).run(sockets=[listener])
"""

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

SCRIPT_KIND = "<script>document.title='owned'</script>"
IMAGE_KIND = "<img src=x onerror=\"document.title='owned'\">"


@contextmanager
def running(code: str, *arguments: str, at: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server process and its address; ended and reaped on leaving."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=at) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://"), "the server did not start"
            yield address, process
        finally:
            process.kill()


@dataclass
class Watched:
    """A page, and everything about it that a reader should never get to see."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)

    def open(self, route: str = "") -> Page:
        self.page.goto("about:blank")  # so that a change of the fragment alone is a new visit as well
        self.page.goto(self.address + route)
        return self.page

    def dismiss(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def check_host(self, url: str) -> None:
        origin = self.address.split("/", 3)[:3]
        if url.split("/", 3)[:3] != origin and url != "about:blank":
            self.complaints.append(f"asked another host: {url}")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("events")
    with events.recording(found / "plain.pev"):
        for step in range(20):
            with events.span("step", step=step), events.span("data.wait"):
                events.record("tick")
    with events.recording(found / "hostile.pev"):
        with events.span(SCRIPT_KIND, **{IMAGE_KIND: IMAGE_KIND}):
            events.record(IMAGE_KIND)
        events.record("turn\u202earound\n")
    with events.recording(found / "empty.pev"):
        pass
    (found / "broken.pev").write_text("something else")
    return found


@pytest.fixture(scope="module")
def address(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert (STATIC / "index.html").is_file(), "the bundle is not built: npm ci && npm run build   (in web/)"
    with running(SERVE, str(directory), at=tmp_path_factory.mktemp("work")) as (found, _):
        yield found


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@contextmanager
def watching(
    browser: Browser, address: str, *, width: int = 1280, scheme: str = "light"
) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    context.add_init_script(
        "addEventListener('securitypolicyviolation', e => console.error('policy: ' + e.violatedDirective))"
    )
    seen = Watched(context.new_page(), address)
    seen.page.set_default_timeout(PATIENCE_MS)
    seen.page.on("console", lambda message: seen.complaints.append(f"console: {message.text}"))
    seen.page.on("pageerror", lambda error: seen.complaints.append(f"script: {error}"))
    seen.page.on("dialog", seen.dismiss)
    seen.page.on("request", lambda request: seen.check_host(request.url))
    yield seen
    context.close()
    assert seen.complaints == []


@pytest.fixture
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    with watching(browser, address) as watched:
        yield watched


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_page_renders_and_fits_the_screen(
    browser: Browser, address: str, width: int, scheme: str
) -> None:
    with watching(browser, address, width=width, scheme=scheme) as watched:
        for route, heading, sign in [
            ("", "Doctor", ".check.ok"),
            ("#/events", "Events", ".files a"),
            ("#/events/plain.pev", "plain.pev", "tbody tr"),
            ("#/events/empty.pev", "empty.pev", ".state"),
            ("#/no/such/page", "There is no such page", ".state"),
        ]:
            page = watched.open(route)
            expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
            expect(page.locator(sign).first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{route} is too wide"
        ink = watched.page.evaluate("getComputedStyle(document.documentElement).color")
        assert (sum(map(int, ink[4:-1].split(","))) > 384) == (scheme == "dark")


def test_the_table_says_what_was_recorded(watched: Watched) -> None:
    page = watched.open("#/events/plain.pev")

    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    counts = {row.locator("th").inner_text(): row.locator("td").first.inner_text() for row in rows.all()}
    assert counts == {"step": "20", "data.wait": "20", "tick": "20"}
    page.get_by_role("button", name="Kind", exact=True).click()
    assert [row.locator("th").inner_text() for row in rows.all()] == ["data.wait", "step", "tick"]


def test_hostile_names_are_shown_as_text(watched: Watched) -> None:
    """Goal: V1, data never becomes markup. Method: kinds and fields that would run as HTML."""
    page = watched.open("#/events/hostile.pev?event=1")

    expect(page.locator(".panel dd")).to_have_text(IMAGE_KIND)
    expect(page.locator(".panel h2")).to_have_text(SCRIPT_KIND)
    shown = page.locator("tbody th").all_inner_texts()
    assert sorted(shown) == sorted([SCRIPT_KIND, IMAGE_KIND, "turn\\u{202e}around\\u{a}"])
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "Events · Penstock"


def test_the_policy_stops_what_escaping_would_miss(watched: Watched) -> None:
    """Goal: V1, the second wall stands. Method: put an inline script into the page by force."""
    page = watched.open()
    expect(page.locator(".check").first).to_be_visible()

    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "document.title = 'owned'";
            document.body.append(script);
        }"""
    )

    assert page.title() == "Doctor · Penstock"
    assert any(complaint.startswith("console: policy: script-src") for complaint in watched.complaints)
    watched.complaints.clear()


def test_a_deep_link_survives_a_reload(watched: Watched) -> None:
    page = watched.open("#/events/plain.pev?kind=data.wait&event=2&from=1000&to=900000")
    for _ in range(2):
        expect(page.get_by_role("button", name="data.wait")).to_have_attribute("aria-pressed", "true")
        expect(page.locator(".panel dl")).to_have_text("step0")
        page.reload()
    assert page.url.endswith("#/events/plain.pev?kind=data.wait&event=2&from=1000&to=900000")


def test_what_the_reader_chooses_goes_into_the_address(watched: Watched) -> None:
    page = watched.open("#/events/plain.pev")

    page.get_by_role("button", name="data.wait").click()
    page.keyboard.press("n")
    page.keyboard.press("n")
    page.keyboard.press("+")
    page.wait_for_url("**/#/events/plain.pev?kind=data.wait&event=4&from=*&to=*")
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    page.wait_for_url("**/#/events/plain.pev?kind=data.wait")


def test_a_click_on_a_span_of_the_timeline_shows_its_fields(watched: Watched) -> None:
    """Method: zoom to one span by its times, so that it fills the width, and click into its row."""
    page = watched.open()
    recording = page.evaluate("() => fetch('api/events/plain.pev').then(answer => answer.json())")
    index = recording["timeline"]["kind"].index(recording["timeline"]["names"].index("step"))
    begin, length = (recording["timeline"][name][index] for name in ("time_ns", "duration_ns"))
    watched.open(f"#/events/plain.pev?from={begin}&to={begin + length}")

    canvas = page.locator("canvas")
    expect(canvas).to_be_visible()
    painted = page.evaluate(
        """() => {
            const canvas = document.querySelector("canvas");
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(pixels.buffer)).size;
        }"""
    )
    assert painted > 5
    canvas.hover(position={"x": 300, "y": 57})
    expect(page.locator(".tip")).to_contain_text("step")
    canvas.click(position={"x": 300, "y": 57})
    expect(page.locator(".panel h2")).to_have_text("step")
    expect(page.locator(".panel dl")).to_have_text("step0")


def test_the_page_says_when_the_timeline_is_cut_and_what_is_missing(watched: Watched) -> None:
    def grow(route: Route) -> None:
        recording = route.fetch().json()
        recording |= {"event_count": 1_234_567, "lost": 3, "torn_bytes": 17}
        route.fulfill(body=json.dumps(recording), content_type="application/json")

    watched.page.route("**/api/events/plain.pev", grow)
    page = watched.open("#/events/plain.pev")

    notices = page.locator(".notices")
    expect(notices).to_contain_text("The timeline shows the first 60 of 1,234,567 events")
    expect(notices).to_contain_text("3 events were lost")
    expect(notices).to_contain_text("17 bytes cannot be read")


def test_the_keyboard_alone_is_enough(watched: Watched) -> None:
    page = watched.open()
    expect(page.locator(".check").first).to_be_visible()

    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Go to Events")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("e")
    expect(page.get_by_role("link", name="plain.pev")).to_be_visible()
    names = page.locator(".files .file-name").all_inner_texts()
    for _ in range(names.index("plain.pev") + 1):
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="plain.pev")).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_role("heading", name="Events")).to_be_visible()


def test_the_chosen_theme_survives_a_reload_and_can_be_given_back(watched: Watched) -> None:
    page = watched.open()
    html = page.locator("html")

    page.get_by_role("button", name="Use dark colours").click()
    expect(html).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(html).to_have_attribute("data-theme", "dark")
    page.keyboard.press("t")
    expect(html).not_to_have_attribute("data-theme", "dark")


def test_under_a_proxy_prefix_everything_stays_below_it(
    browser: Browser, directory: Path, tmp_path: Path
) -> None:
    prefix = "/user/ada/proxy/8090"
    with (
        running(SERVE_UNDER_PREFIX, str(directory), prefix, at=tmp_path) as (address, _),
        watching(browser, address) as watched,
    ):
        asked: list[str] = []
        watched.page.on("request", lambda request: asked.append(request.url))
        page = watched.open("#/events")

        page.get_by_role("link", name="plain.pev").click()
        expect(page.locator("tbody tr")).to_have_count(3)
        page.reload()
        expect(page.locator("tbody tr")).to_have_count(3)

        assert [url for url in asked if not url.startswith(address) and url != "about:blank"] == []


def test_an_empty_directory_says_what_fills_it(browser: Browser, tmp_path: Path) -> None:
    with (
        running(SERVE, str(tmp_path / "none"), at=tmp_path) as (address, _),
        watching(browser, address) as watched,
    ):
        page = watched.open("#/events")

        expect(page.get_by_role("heading", name="No recordings yet")).to_be_visible()
        expect(page.locator("pre")).to_contain_text("events.recording(")


def test_a_file_that_is_no_recording_shows_the_reason(watched: Watched) -> None:
    page = watched.open("#/events/broken.pev")

    expect(page.get_by_role("alert")).to_contain_text("broken.pev is not an event file")
    expect(page.get_by_role("alert")).to_contain_text("event files are written by penstock.events.start()")
    assert all("422" in complaint for complaint in watched.complaints)
    watched.complaints.clear()


def test_a_server_that_is_gone_is_said_plainly_and_can_be_asked_again(
    browser: Browser, tmp_path: Path
) -> None:
    with (
        running(SERVE, str(tmp_path), at=tmp_path) as (address, process),
        watching(browser, address) as watched,
    ):
        page = watched.open("#/events")
        expect(page.get_by_role("heading", name="No recordings yet")).to_be_visible()
        process.kill()
        process.wait()

        page.keyboard.press("r")

        expect(page.get_by_role("alert")).to_contain_text("the server does not answer")
        expect(page.get_by_role("button", name="Try again")).to_be_visible()
        watched.complaints.clear()
