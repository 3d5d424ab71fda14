"""The pages of the machine in a real Chromium against the real command: doctor, recordings, keys, themes, failures."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from penstock import events
from penstock.view.web.server import STATIC
from tests.view.browsing import Watched, watching
from tests.view.serving import serving

SCRIPT_KIND = "<script>document.title='owned'</script>"
IMAGE_KIND = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home") / "events"
    folder.mkdir()
    with events.recording(folder / "plain.pev"):
        for step in range(20):
            with events.span("step", step=step), events.span("data.wait"):
                events.record("tick")
    with events.recording(folder / "hostile.pev"):
        with events.span(SCRIPT_KIND, **{IMAGE_KIND: IMAGE_KIND}):
            events.record(IMAGE_KIND)
        events.record("turn\u202earound\n")
    with events.recording(folder / "empty.pev"):
        pass
    (folder / "broken.pev").write_text("something else")
    return folder


@pytest.fixture(scope="module")
def address(directory: Path) -> Iterator[str]:
    assert (STATIC / "index.html").is_file(), "the bundle is not built: npm ci && npm run build   (in web/)"
    with serving(directory.parent) as (url, _):
        yield url


@pytest.fixture
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    with watching(browser, address) as watched:
        yield watched


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (400, "light")])
def test_every_page_renders_and_fits_the_screen(
    browser: Browser, address: str, width: int, scheme: str
) -> None:
    with watching(browser, address, width=width, scheme=scheme) as watched:
        for route, heading, sign in [
            ("#/doctor", "Machine", ".check.ok"),
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
    page = watched.open("#/doctor")
    expect(page.locator(".check").first).to_be_visible()

    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "document.title = 'owned'";
            document.body.append(script);
        }"""
    )

    assert page.title() == "Machine · Penstock"
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


@pytest.mark.parametrize(
    ("answer", "words", "hint"),
    [
        (
            {"status": 502, "content_type": "text/html", "body": "<h1>Bad gateway</h1>"},
            "status 502",
            "a proxy",
        ),
        ({"content_type": "text/html", "body": "<form>Log in</form>"}, "is text/html and not", "a proxy"),
        ({"json": {"directory": "/e", "left_out": 0}}, 'it lacks "recordings"', "different versions"),
        (
            {
                "json": {
                    "directory": "/e",
                    "recordings": [{"name": 7}],
                    "left_out": 0,
                    "runs": [],
                    "runs_left_out": 0,
                }
            },
            'recordings[0] lacks "bytes"',
            "different versions",
        ),
        ({"status": 404, "json": {"detail": "Not Found"}}, "status 404", "a proxy"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_in_words(
    watched: Watched, answer: dict[str, Any], words: str, hint: str
) -> None:
    watched.page.route("**/api/events", lambda route: route.fulfill(**answer))
    page = watched.open("#/events")

    failed = page.locator(".state.failed")
    expect(failed).to_contain_text(words)
    expect(failed).to_contain_text(hint)
    watched.page.unroute("**/api/events")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("link", name="plain.pev")).to_be_visible()
    # Of a status that is no success Chromium complains by itself.
    assert all("Failed to load resource" in complaint for complaint in watched.complaints)
    watched.complaints.clear()


def test_the_keyboard_alone_is_enough(watched: Watched) -> None:
    page = watched.open("#/doctor")
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


def test_an_empty_directory_says_what_fills_it(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as (address, _), watching(browser, address) as watched:
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
    with serving(tmp_path) as (address, process), watching(browser, address) as watched:
        page = watched.open("#/events")
        expect(page.get_by_role("heading", name="No recordings yet")).to_be_visible()
        process.kill()
        process.wait()

        page.keyboard.press("r")

        expect(page.get_by_role("alert")).to_contain_text("the server does not answer")
        expect(page.get_by_role("button", name="Try again")).to_be_visible()
        watched.complaints.clear()
