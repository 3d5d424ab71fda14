"""The pages of data in a real Chromium: lists, rows of any number, spreads, filters, one row, lineage, versions compared."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

import penstock as ps
from tests.view.browsing import Watched, watching
from tests.view.exhibit import HOSTILE_FIELD, IMAGE, SCRIPT
from tests.view.serving import serving

VISIBLE_FIELD = HOSTILE_FIELD.replace("\u202e", "\\u{202e}")


def lines(page: Page) -> list[int]:
    """Row numbers that are on the page."""
    return [int(text.replace(",", "")) for text in page.locator(".row-number").all_inner_texts()]


def at_rest(page: Page, route: str) -> None:
    """The URL is this one."""
    page.wait_for_function("route => decodeURIComponent(location.hash) === route", arg=route)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_of_data_renders_and_fits_the_screen(
    browser: Browser, exhibit_address: str, width: int, scheme: str
) -> None:
    with watching(browser, exhibit_address, width=width, height=844, scheme=scheme) as watched:
        for route, sign in [
            ("", "table.list tbody tr"),
            ("#/d/web", "table.list tbody tr"),
            ("#/a/web@2", ".row-line"),
            ("#/a/web@2/row/3", ".row-panel .field"),
            ("#/a/web@2?tab=schema", "table.list tbody tr"),
            ("#/a/web@2?tab=shards", "table.list tbody tr"),
            ("#/a/web@2?tab=lineage", "svg .place"),
            ("#/a/recipe.toml%23step=1,row=2,token=9", ".grid-line .tk.chosen"),
            ("#/a/recipe.toml%23step=1?view=lanes", ".lane"),
            ("#/a/pictures.toml%23step=1", ".record img"),
            ("#/diff?a=web@1&b=web@2", ".verdict"),
            ("#/diff?a=recipe.toml%23step=1&b=recipe.toml%23step=2", ".pane .tk.differs"),
            ("#/diff", ".state"),
        ]:
            page = watched.page if watched.asked else watched.open()
            page.goto(f"{watched.base}{route or '#/'}")  # changes the fragment, and loads nothing again
            expect(page.locator(sign).first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{route} is too wide"


def test_the_token_leaves_the_address_and_the_cookie_is_enough(shown: Watched) -> None:
    page = shown.open("#/a/web@2")
    expect(page.locator(".row-line").first).to_be_visible()

    assert "token" not in page.url
    assert page.evaluate("document.cookie") == ""
    page.goto("about:blank")
    page.goto(shown.base + "#/a/web@2")
    expect(page.locator(".row-line").first).to_be_visible()


def test_without_the_cookie_a_browser_is_told_what_to_do(browser: Browser, exhibit_address: str) -> None:
    with watching(browser, exhibit_address) as watched:
        watched.page.goto(watched.base)
        expect(watched.page.locator("body")).to_contain_text("open the address that `penstock web` printed")
        watched.complaints.clear()  # the browser notes the 401


def test_from_the_list_to_a_row_by_clicks(shown: Watched) -> None:
    page = shown.open()

    page.get_by_role("link", name="web", exact=True).click()
    page.locator(".row-line").nth(5).click()

    at_rest(page, "#/a/web@2/row/5")
    expect(page.locator(".row-panel h2")).to_have_text("row 5 of 1,200")
    page.get_by_role("button", name="Next row").click()
    at_rest(page, "#/a/web@2/row/6")
    page.keyboard.press("p")
    page.keyboard.press("p")
    at_rest(page, "#/a/web@2/row/4")
    page.keyboard.press("Escape")
    at_rest(page, "#/a/web@2")
    expect(page.locator(".row-panel")).to_have_count(0)


def test_hostile_rows_and_names_of_columns_are_shown_as_text(shown: Watched) -> None:
    """Goal: V1. Method: a row whose text would run, turn or hide, in a column whose name would too."""
    page = shown.open("#/a/web@2/row/3")

    text = (
        page.locator(".row-panel .field")
        .filter(has=page.get_by_role("heading", name="text text"))
        .locator("pre")
    )
    expect(text).to_contain_text(SCRIPT)
    expect(text).to_contain_text(IMAGE)
    marks = text.locator(".mark-sign").all_inner_texts()
    assert marks == ["U+202E", "U+202C", "U+200B", "U+2066", "U+2069"]
    expect(page.get_by_text(VISIBLE_FIELD).first).to_be_attached()
    assert page.locator("main script, main img, main [onmouseover], main b").count() == 0
    assert page.title() == "web@2/row/3 · Penstock"


def test_a_bar_above_a_column_filters_and_the_filter_is_in_the_link(shown: Watched) -> None:
    page = shown.open("#/a/web@2")

    page.locator(".choices button").filter(has_text="de").first.click()

    at_rest(page, "#/a/web@2?where=lang+==+'de'")
    expect(page.locator(".rows-words")).to_contain_text("1,200 of 1,200 rows looked at")
    numbers = lines(page)
    page.reload()
    expect(page.locator(".row-line").first).to_be_visible()
    assert lines(page) == numbers
    page.get_by_role("button", name="Clear").click()
    at_rest(page, "#/a/web@2")


def test_a_filter_by_keyboard_and_one_that_cannot_be_read(shown: Watched) -> None:
    page = shown.open("#/a/web@2")
    expect(page.locator(".row-line").first).to_be_visible()

    page.keyboard.press("/")
    page.keyboard.type("id >= 1195")
    page.keyboard.press("Enter")
    expect(page.locator(".rows-words")).to_contain_text("5 rows pass")
    page.keyboard.press("j")
    page.keyboard.press("j")
    at_rest(page, "#/a/web@2/row/1196?where=id+>=+1195")
    page.keyboard.press("/")
    page.keyboard.press("Control+a")
    page.keyboard.type("open('/etc/passwd')")
    page.keyboard.press("Enter")
    expect(page.locator(".rows-words")).to_contain_text("is not part of the language")
    assert all("422" in complaint for complaint in shown.complaints)
    shown.complaints.clear()


def test_any_row_is_reached_by_its_number(shown: Watched) -> None:
    page = shown.open("#/a/web@2")
    expect(page.locator(".row-line").first).to_be_visible()

    page.keyboard.press("#")
    page.keyboard.type("1,150")
    page.keyboard.press("Enter")

    at_rest(page, "#/a/web@2/row/1150")
    expect(page.locator(".row-line[aria-current] .row-number")).to_have_text("1,150")


def test_a_billion_rows_scroll_as_few_do(shown: Watched) -> None:
    """Method: the server's answers say that there are 10⁹ rows, and give the rows asked for; the page cannot tell."""
    asked: list[int] = []

    def version(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "rows": 10**9})

    def rows(route: Route) -> None:
        start = int(route.request.url.partition("start=")[2].partition("&")[0])
        asked.append(start)
        cells = [{"kind": "number", "text": "1"}] * 7
        route.fulfill(json={"rows": [{"row": start + n, "cells": cells} for n in range(64)], "of": 10**9})

    shown.page.route("**/api/version?*", version)
    shown.page.route("**/api/rows?*", rows)
    page = shown.open("#/a/web@2")
    expect(page.locator(".row-number").first).to_have_text("0")
    box = page.locator(".virtual")
    assert box.evaluate("box => box.scrollHeight") < 10_000_000

    box.focus()
    page.keyboard.press("End")
    expect(page.locator(".row-number").last).to_have_text("999,999,999")
    page.keyboard.press("PageUp")
    page.keyboard.press("ArrowDown")
    middle = box.evaluate("box => { box.scrollTop = box.scrollHeight / 2; return box.scrollHeight }")
    assert middle > 0
    page.wait_for_function(
        "() => Math.abs(parseInt(document.querySelector('.row-number')?.textContent.replaceAll(',', '')) - 5e8) < 1e8"
    )
    expect(page.locator(".row-line.waiting")).to_have_count(0)
    before = lines(page)[0]
    box.hover()
    page.mouse.wheel(0, 90)
    page.wait_for_function(
        "before => { const now = parseInt(document.querySelector('.row-number')?.textContent.replaceAll(',', '')); return now > before && now < before + 20 }",
        arg=before,
    )
    assert len(asked) < 20


def test_media_are_shown_and_heard(shown: Watched) -> None:
    page = shown.open("#/a/pictures@1/row/3")

    image = page.locator(".row-panel img")
    expect(image).to_be_visible()
    page.wait_for_function("() => document.querySelector('.row-panel img').naturalWidth === 96")
    page.wait_for_function("() => document.querySelector('.row-panel audio').duration === 0.25")
    expect(page.get_by_role("link", name="Save 300 B")).to_be_visible()


def test_lineage_is_drawn_and_leads_on(shown: Watched) -> None:
    page = shown.open("#/a/web@2?tab=lineage")

    expect(page.locator("svg .place.own")).to_contain_text("web@2")
    page.locator("svg a").filter(has_text="web/parquet@1").click()
    expect(page.locator("svg .place.own")).to_contain_text("web/parquet@1")
    expect(page.locator("svg .place")).to_have_count(2)


def test_two_versions_are_compared(shown: Watched) -> None:
    page = shown.open("#/d/web")

    page.get_by_role("link", name="compare with @1").click()
    expect(page.locator(".verdict")).to_have_text("The two differ.")
    page.get_by_role("button", name="Compare rows too").click()
    expect(page.locator(".fields")).to_contain_text("rows added600")
    page.keyboard.press("x")
    expect(page.locator(".fields")).to_contain_text("shards removed001.jsonl")


def test_an_address_typed_or_pasted_as_a_whole_url_is_opened(shown: Watched) -> None:
    page = shown.open()
    expect(page.locator("table.list").first).to_be_visible()

    for typed, route in [
        ("code@1/row/2", "#/a/code@1/row/2"),
        (f"{shown.base}#/a/recipe.toml%23step=1", "#/a/recipe.toml#step=1"),
    ]:
        page.keyboard.press("a")
        page.keyboard.press("Control+a")
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
        at_rest(page, route)


def test_commands_can_be_copied(shown: Watched, folder: Path) -> None:
    page = shown.open("#/a/web@2")

    page.get_by_role("button", name="Copy").click()

    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "penstock data show web@2 --registry registry"
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *copied.split()[1:], "--json"],
        cwd=folder,
        capture_output=True,
    )
    assert json.loads(done.stdout)["address"] == "web@2"


def test_an_address_of_nothing_says_what_there_is(shown: Watched) -> None:
    page = shown.open("#/a/wbe@2")

    expect(page.get_by_role("alert")).to_contain_text("wbe")
    assert all("422" in complaint for complaint in shown.complaints)
    shown.complaints.clear()


def test_a_list_that_is_cut_says_so(shown: Watched) -> None:
    def cut(route: Route) -> None:
        route.fulfill(
            body=json.dumps({**route.fetch().json(), "left_out": 7}), content_type="application/json"
        )

    shown.page.route("**/api/datasets", cut)
    page = shown.open()

    expect(page.locator(".lead").first).to_contain_text("7 of them are not listed")


def test_bars_are_reached_by_keyboard(shown: Watched) -> None:
    page = shown.open("#/a/web@2")
    first = page.locator(".choices button").first
    expect(first).to_be_visible()

    first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    at_rest(page, "#/a/web@2?where=lang+==+'de'")


RECORD = """async () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [64, 48];
    const brush = canvas.getContext("2d");
    const recorder = new MediaRecorder(canvas.captureStream(20), {mimeType: "video/webm"});
    const parts = [];
    recorder.ondataavailable = event => parts.push(event.data);
    const ended = new Promise(done => { recorder.onstop = done; });
    recorder.start();
    for (let frame = 0; frame < 12; frame++) {
        brush.fillStyle = `hsl(${frame * 30} 80% 50%)`;
        brush.fillRect(0, 0, 64, 48);
        await new Promise(done => requestAnimationFrame(() => setTimeout(done, 40)));
    }
    recorder.stop();
    await ended;
    return [...new Uint8Array(await new Blob(parts).arrayBuffer())];
}"""


def test_a_film_is_played_in_ranges(browser: Browser, tmp_path: Path) -> None:
    """Method: the browser itself records a film, which is registered as a raw file and then looked at."""
    recording = browser.new_page()
    film = bytes(recording.evaluate(RECORD))
    recording.close()
    (tmp_path / "raw").mkdir()
    with tarfile.open(tmp_path / "raw/films.tar", "w") as archive:
        about = tarfile.TarInfo("000000.webm")
        about.size = len(film)
        archive.addfile(about, io.BytesIO(film))
    ps.Registry(tmp_path / "registry").register("films", tmp_path / "raw")

    with serving(tmp_path) as (address, _), watching(browser, address) as watched:
        answers: list[tuple[int, str | None]] = []
        watched.page.on(
            "response",
            lambda answer: (
                "api/media" in answer.url
                and answers.append((answer.status, answer.headers.get("content-type")))
            ),
        )
        page = watched.open("#/a/films@1/row/0")
        page.wait_for_function("() => document.querySelector('.row-panel video')?.videoWidth === 64")
        page.locator(".row-panel video").evaluate(
            "async film => { film.muted = true; await film.play(); film.currentTime = 0.2 }"
        )
        page.wait_for_function("() => !document.querySelector('.row-panel video').seeking")
        assert set(answers) == {(206, "video/webm")}
