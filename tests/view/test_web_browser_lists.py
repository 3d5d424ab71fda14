"""Long lists, long scans and texts of every script in a real Chromium."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import penstock as ps
from tests.view.browsing import Watched, watching
from tests.view.exhibit import write_tokenizer
from tests.view.serving import serving
from tests.view.test_characters import WORLD

ROWS = 120_000
DATASETS = 40
HEBREW = "שלום עולם " * 40
ARABIC = "مرحبا بالعالم " * 40
#: Whether the first and the last characters of cells are seen, and whether the first are to the right of the last.
WHERE = """() => [0, 1, 2, 3].map((line) => {
            const cell = document.querySelectorAll('.row-line')[line].querySelector('.cell');
            const box = cell.getBoundingClientRect();
            const text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT).nextNode();
            const range = document.createRange();
            range.setStart(text, 0);
            range.setEnd(text, 4);
            const first = range.getBoundingClientRect();
            range.setStart(text, text.length - 4);
            range.setEnd(text, text.length);
            const last = range.getBoundingClientRect();
            const inside = (one) => one.left >= box.left && one.right <= box.right;
            return [inside(first), inside(last), first.left > last.left];
        })"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many datasets, one with many rows, one of texts from right to left, and a recipe of texts of every script."""
    folder = tmp_path_factory.mktemp("lists")
    registry = ps.Registry(folder / "registry")
    (folder / "many.jsonl").write_text("".join(f'{{"id": {n}}}\n' for n in range(ROWS)))
    registry.register("many", folder / "many.jsonl")
    texts = [HEBREW, ARABIC, "latin words " * 40, f"{HEBREW} ends in latin", *WORLD]
    (folder / "world.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts * 4))
    registry.register("world", folder / "world.jsonl", about=ps.About(note="texts of every script"))
    for number in range(DATASETS):
        registry.register(f"shelf/{number:03}", folder / "world.jsonl")
    write_tokenizer(folder / "tokenizer.json", ["plain words"])
    (folder / "inline.toml").write_text(
        'batch = 4\nshuffle = "none"\nsources = [{name = "world@1"}]\n'
        'stages = [{kind = "tokenize", tokenizer = "tokenizer.json"}, {kind = "pack", length = 512}]\n'
    )
    ps.batch_at(ps.Recipe.load(folder / "inline.toml"), step=0, registry=registry)
    return folder


@pytest.fixture(scope="module")
def address(library: Path) -> Iterator[str]:
    with serving(library) as (address, _):
        yield address


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Watched]:
    with watching(browser, address) as watched:
        yield watched


def test_a_long_list_is_searched_and_the_search_is_in_the_link(page: Watched, library: Path) -> None:
    every = len(ps.Registry(library / "registry").datasets())
    shown = page.open()
    expect(shown.locator("table.list tbody tr")).to_have_count(every)
    # A recipe whose sources stand on one line is one, too.
    expect(shown.locator(".streams li")).to_have_text(["inline.toml recipe, step 0"])
    shown.keyboard.press("/")
    shown.keyboard.type("every SCRIPT")
    expect(shown.locator("table.list tbody tr")).to_have_count(1)
    expect(shown.locator("table.list tbody tr")).to_contain_text("world")
    expect(shown.locator(".streams li")).to_have_count(0)
    shown.wait_for_function("() => decodeURIComponent(location.hash).includes('find=every+SCRIPT')")
    shown.keyboard.press("Escape")
    expect(shown.locator("table.list tbody tr")).to_have_count(every)
    shown = page.open("#/?find=shelf/01")
    expect(shown.locator("table.list tbody tr")).to_have_count(10)
    expect(shown.get_by_role("searchbox")).to_have_value("shelf/01")


def test_a_filter_scans_all_rows_with_progress(page: Watched) -> None:
    """Goal: what stands after the first look is found without pressing a button for every look."""
    shown = page.open(f"#/a/many@1?where=id == {ROWS - 3}")
    look = shown.get_by_role("button", name="Look at all rows")
    expect(look).to_be_visible()
    assert shown.locator(".row-line").count() == 0
    look.click()
    expect(shown.locator(".row-number")).to_have_text([f"{ROWS - 3:,}"])
    words = shown.locator(".rows-words")
    expect(words).to_contain_text(f"1 row passes, {ROWS:,} of {ROWS:,} rows looked at")
    expect(look).to_have_count(0)


def test_a_scan_shows_how_far_it_is_and_stops_when_told(page: Watched) -> None:
    """Method: the second look is held back until the page has been told to stop."""
    shown = page.open("#/a/many@1?where=id < 0")
    expect(shown.get_by_role("button", name="Look at all rows")).to_be_visible()
    shown.route("**/api/filter*", lambda route: None)
    shown.get_by_role("button", name="Look at all rows").click()
    bar = shown.get_by_role("progressbar")
    expect(bar).to_be_visible()
    assert 0 < float(bar.get_attribute("value") or 0) < 1
    shown.get_by_role("button", name="Stop").click()
    expect(bar).to_have_count(0)
    expect(shown.get_by_role("button", name="Look at all rows")).to_be_visible()
    shown.unroute("**/api/filter*")


def test_a_cell_is_cut_at_the_end_of_its_text(browser: Browser, address: str) -> None:
    """Goal: of a text from right to left the beginning is seen, at the right. Method: where the first and last words are drawn."""
    with watching(browser, address, width=600) as watched:
        shown = watched.open("#/a/world@1")
        # Rows are there before what is in them.
        expect(shown.locator(".row-line").nth(3).locator(".cell").first).to_be_visible()
        places = shown.evaluate(WHERE)
    assert places == [[True, False, True], [True, False, True], [True, False, False], [True, False, True]]


def test_tokens_show_characters_and_their_bytes_on_demand(page: Watched) -> None:
    shown = page.open("#/a/inline.toml%23step=0")
    grid = shown.locator(".grid-line").first
    expect(grid).to_contain_text("ש◂ל◂ו◂ם◂")
    assert "⟨" not in grid.inner_text()
    assert shown.locator(".tk.within").first.inner_text() == "◂"
    shown.locator(".tk.within").first.click()
    # The panel has the exact bytes of the token, whatever the grid shows.
    expect(shown.locator(".token-facts")).to_contain_text("partial")
    shown.keyboard.press("b")
    expect(grid).to_contain_text("⟨D7⟩")
    shown.wait_for_function("() => location.hash.includes('bytes=1')")
    shown.get_by_role("button", name="bytes").click()
    expect(grid).to_contain_text("ש◂ל◂ו◂ם◂")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("row=99", "There is no row 99: rows go from 0 to 3."),
        ("row=1,token=512", "There is no token 512 in a row of 512."),
    ],
)
def test_a_place_that_a_batch_does_not_have_is_said(page: Watched, place: str, words: str) -> None:
    shown = page.open(f"#/a/inline.toml%23step=0,{place}")

    expect(shown.get_by_role("alert")).to_have_text(words)
    expect(shown.locator(".tk.chosen")).to_have_count(0)


def test_links_that_lead_away_are_said_and_nobody_says_there_are_none(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/recipe.toml").write_text('batch = 4\nsources = [{name = "web@1"}]\n')
    (tmp_path / "here").mkdir()
    (tmp_path / "here/recipes").symlink_to(tmp_path / "shared", target_is_directory=True)
    with serving(tmp_path / "here") as (address, _), watching(browser, address) as watched:
        shown = watched.open()
        expect(shown.locator("section .lead")).to_contain_text("None were found below")
        expect(shown.locator("section .cut")).to_contain_text("links that lead out of the folders")


@pytest.mark.parametrize("delay_ms", [145, 150, 155])
def test_no_letter_is_lost_while_a_search_goes_into_the_link(page: Watched, delay_ms: int) -> None:
    """Goal: who types as slowly as the box rests loses nothing. Method: letters come as what was typed before them comes back."""
    shown = page.open()
    expect(shown.locator("input.search")).to_be_visible()
    shown.keyboard.press("/")
    shown.keyboard.type("every SCRIPT", delay=delay_ms)
    expect(shown.locator("input.search")).to_have_value("every SCRIPT")
    shown.wait_for_function("() => decodeURIComponent(location.hash).includes('find=every+SCRIPT')")
