"""The page of hosts in a real Chromium: an imagined job of 100,000 hosts is painted, searched, zoomed and moves; by keyboard alone."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.view.browsing import watching
from tests.view.playing import playing

PAINTED = """(canvas) => {
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(data.buffer)).size;
}"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """100,000 hosts and some in reserve."""
    folder = tmp_path_factory.mktemp("played")
    hosts = ("--hosts", "100000", "--spare-hosts", "64", "--racks", "3125", "--for", "2d")
    with playing(folder, *hosts, "--speed", "1") as url:
        yield url


def _until_a_rack_fails(page: Page) -> None:
    """Press n until hosts are unheard."""
    for _ in range(30):
        if "unheard" in page.locator(".host-legend").inner_text():
            return
        strip = page.locator(".host-strip")
        before = strip.get_attribute("data-at") or ""
        page.keyboard.press("n")
        expect(strip).not_to_have_attribute("data-at", before)
    raise AssertionError("no rack fails")


def test_a_hundred_thousand_hosts_are_painted_searched_zoomed_and_opened_by_keyboard(
    browser: Browser, large: str
) -> None:
    """Method: play until a rack fails, choose the worst host, show its rack, open it, search; what is said is read where screen readers read."""
    with watching(browser, large) as watched:
        page = watched.open("#/hosts/simulation")
        canvas = page.locator(".host-map canvas")
        expect(page.locator(".host-legend")).to_contain_text("here 100,000")
        expect(canvas).to_have_attribute("aria-label", re.compile("100,064 hosts: 100,000 here, 64 spare"))
        page.keyboard.press("p")
        _until_a_rack_fails(page)
        expect(page.locator(".host-legend")).to_contain_text("unheard 32")
        expect(page.locator(".host-troubled li")).to_have_count(1)
        expect(page.locator(".host-troubled li")).to_contain_text(re.compile(r"32 hosts of rack\d+ unheard"))
        expect(page.locator(".host-events")).to_contain_text("switch takes rack")
        assert canvas.evaluate(PAINTED) >= 3
        page.keyboard.press("w")
        expect(page.locator("#host-said")).to_contain_text("unheard")
        page.keyboard.press("z")
        expect(page.locator("h2", has_text="Hosts of rack")).to_be_visible()
        expect(page).to_have_url(re.compile(r"rack=rack\d+"))
        canvas.focus()
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        expect(page.locator(".host-detail")).to_contain_text("an imagined host runs nothing")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        expect(page.locator("h2", has_text="All hosts")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("unheard")
        expect(page.locator(".section-head [role=status]")).to_have_text("32 hosts found")
        boards = [asked for asked in watched.asked if "hosts/board" in asked]
        assert len(boards) == 1
        assert not any("\u202e" in text for text in page.locator("main").all_inner_texts())


def test_a_job_that_is_played_goes_on_by_itself_and_stands_still_when_told(
    browser: Browser, large: str
) -> None:
    with watching(browser, large, scheme="dark") as watched:
        page = watched.open("#/hosts")
        page.get_by_role("link", name="100,064 hosts").click()
        slider = page.locator(".host-player input")
        expect(slider).not_to_have_attribute("aria-valuetext", "00:00:00")
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
        page.get_by_label("Speed").select_option("3600")
        page.get_by_role("button", name="Play", exact=True).click()
        expect(slider).to_have_attribute("aria-valuetext", re.compile(r"\d\d:\d\d:\d\d"))
        watched.open("#/hosts/nowhere")
        expect(page.locator(".failed")).to_contain_text("no job of many hosts is called 'nowhere' here")
        # The browser itself notes answers that refuse.
        watched.complaints[:] = [words for words in watched.complaints if "422" not in words]
