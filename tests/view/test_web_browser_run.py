"""The page of a run in a real Chromium: the report's numbers, charts that zoom and lead to batches, and text that stays text."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from tests.view.browsing import Watched, watching
from tests.view.run_exhibit import HOSTILE, STEPS

RUN = "#/a/run:runs/slow"
PAINTED = """(canvas) => {
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(data.buffer)).size;
}"""


@pytest.fixture(scope="module")
def report(runs_folder: Path) -> Any:
    """What ``penstock report --json`` prints (``test_web_runs`` compares with the command itself)."""
    return json.loads(json.dumps(report_of(evidence_of(runs_folder / "runs/slow")).to_json()))


@pytest.fixture
def watched(browser: Browser, runs_address: str) -> Iterator[Watched]:
    with watching(browser, runs_address) as watched:
        yield watched


def value(page: Page, name: str) -> str:
    """A number of the page, unrounded."""
    return page.locator(f".tiles [data-number={name}]").get_attribute("data-value") or ""


def test_the_page_shows_the_numbers_of_the_report_and_foreign_text_as_text(
    watched: Watched, report: Any
) -> None:
    """Goal: one number; hostile names are text. Method: every tile, the headline, the ledger and the incident of a real run."""
    page = watched.open(RUN)
    expect(page.locator(".headline-line")).to_have_text(report["diagnosis"]["line"])
    for name in ("tokens_per_s", "p50_ns", "p99_ns"):
        assert float(value(page, name)) == report["speed"][name]
    assert float(value(page, "goodput")) == report["ledger"]["goodput"]["runtime"]
    assert float(value(page, "memory")) == report["memory"]["rss"]
    assert value(page, "mfu") == report["mfu"]["value"]
    expect(page.locator("[data-number=mfu] .tile-note")).to_have_text(report["mfu"]["reason"])
    goodput = f"{100 * report['ledger']['goodput']['runtime']:.1f} %"
    expect(page.locator("[data-number=goodput] .tile-value")).to_have_text(goodput)
    for name, spent in report["ledger"]["accounts"].items():
        if spent:
            assert page.locator(f"[data-account={name}]").get_attribute("data-ns") == str(spent)
    incident = report["ledger"]["incidents"][0]
    row = page.locator(f"[data-incident='{incident['device_ns']}']")
    expect(row).to_contain_text("Fault: a planted failure")
    expect(page.locator(".life-bar")).to_have_count(2)
    assert page.locator("h3 img, td b").count() == 0
    expect(page.locator(".chart h3", has_text="onerror")).to_contain_text(
        HOSTILE.replace("\u202e", "\\u{202e}")
    )
    expect(page.locator(".chart .cut")).to_have_text("3 values are not finite and are not drawn.")
    assert "owned" not in page.title()


def test_charts_are_drawn_in_both_themes_zoomed_smoothed_and_lead_to_a_batch(watched: Watched) -> None:
    """Goal: curves to work with. Method: drag, the slider's key, the theme's, the way back, and a click on a step."""
    page = watched.open(RUN)
    canvas = page.locator("[data-curve=loss] canvas")
    canvas.wait_for()
    assert canvas.evaluate(PAINTED) > 10
    page.keyboard.press("t")
    page.keyboard.press("s")
    expect(page).to_have_url(re.compile(r"smooth=0\.9"))
    assert canvas.evaluate(PAINTED) > 10
    over = page.locator("[data-curve=loss] .u-over")
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 40, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"from=(4[5-9]|5[0-4])&to=(9[5-9]|10[0-4])(?!\d)"))
    expect(page.locator(".charts:not([data-steps^='0:'])")).to_be_visible()
    page.keyboard.press("0")
    expect(page.locator(f".charts[data-steps='0:{STEPS}']")).to_be_visible()
    expect(page).not_to_have_url(re.compile("from="))
    page.locator("[data-curve=step_time] .chart-plot").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[data-curve=loss] .chart-value")).to_contain_text(f"step {STEPS - 2}")
    over.click(position={"x": 0.5 * box["width"], "y": 40})
    expect(page).to_have_url(re.compile(r"run:runs/slow%23step=(9[89]|10[01])(?!\d)"))
    expect(page.locator(".facts")).to_contain_text("tokens")
    page.get_by_role("link", name="run", exact=True).click()
    expect(page.locator(".headline")).to_be_visible()


def test_a_column_is_shown_by_rank_and_recordings_open_here_and_on_events(watched: Watched) -> None:
    page = watched.open(RUN)
    page.get_by_label("Column", exact=True).select_option("host.user")
    expect(page).to_have_url(re.compile("column=host.user"))
    heat = page.locator(".heat-map")
    expect(heat).to_have_attribute("aria-label", "host.user of 1 rank by step")
    assert heat.evaluate(PAINTED) > 10
    page.get_by_role("link", name="000001-0000.pev").click()
    expect(page.locator(".lead")).to_contain_text("events in")
    page.get_by_role("link", name="Events", exact=True).first.click()
    expect(page.locator("h2", has_text="runs/slow")).to_be_visible()
    expect(page.locator(".of-run li")).to_have_count(4)
    page.locator(".of-run a").first.click()
    expect(page.locator("canvas")).to_be_visible()


def test_a_run_without_rows_a_folder_that_is_none_and_a_name_that_is_nowhere(watched: Watched) -> None:
    page = watched.open("#/a/run:runs/bare")
    expect(page.locator(".headline-line")).to_contain_text("no diagnosis")
    assert value(page, "tokens_per_s") == "unmeasured"
    expect(page.locator("[data-curve=loss] canvas")).to_be_visible()
    for name, says in (("empty", "there is no run in empty"), ("nowhere", "there is no 'nowhere' below")):
        page = watched.open(f"#/a/run:{name}")
        expect(page.locator(".failed")).to_contain_text(says)
    # The browser itself notes answers that refuse.
    watched.complaints[:] = [words for words in watched.complaints if "422" not in words]
