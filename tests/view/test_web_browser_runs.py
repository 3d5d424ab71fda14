"""Runs side by side in a real Chromium: filter, order, groups, curves over each other, links that keep all of it."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from penstock.report.run_evidence import evidence_of
from penstock.report.run_report import report_of
from tests.view.browsing import Watched, watching
from tests.view.run_exhibit import HOSTILE
from tests.view.serving import serving
from tests.view.test_web_browser_run import PAINTED

MANY = 14


@pytest.fixture(scope="module")
def many_address(runs_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of many runs: copies, a damaged one, and one whose name would be markup."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(MANY - 2):
        shutil.copytree(runs_folder / "runs/bare", folder / f"runs/r{number:02}")
    shutil.copytree(runs_folder / "runs/bare", folder / "runs" / HOSTILE.replace("/", ""))
    shutil.copytree(runs_folder / "runs/bare", folder / "runs/zz")
    for file in (folder / "runs/zz/journal").iterdir():
        file.write_bytes(b"\x00\xff\n" * 3)
    shutil.copytree(runs_folder / "registry", folder / "registry")
    with serving(folder) as (address, _):
        yield address


@pytest.fixture
def watched(browser: Browser, runs_address: str) -> Iterator[Watched]:
    with watching(browser, runs_address) as watched:
        yield watched


def test_from_the_start_page_to_the_folder_to_a_run_and_back(watched: Watched, runs_folder: Path) -> None:
    page = watched.open("")
    page.get_by_role("link", name="runs 3 runs side by side").click()
    expect(page).to_have_url(re.compile(r"#/a/runs:runs$"))
    rows = page.locator("tr[data-run]")
    expect(rows).to_have_count(3)
    line = report_of(evidence_of(runs_folder / "runs/slow")).diagnosis.line
    expect(page.locator("tr[data-run='run:runs/slow'] .diagnosis")).to_have_text(line)
    expect(page.locator(".overlay")).to_have_attribute("data-runs", "3")
    assert page.locator(".overlay canvas").evaluate(PAINTED) > 20
    page.get_by_role("link", name="slow", exact=True).click()
    expect(page.locator(".headline-line")).to_have_text(line)
    page.get_by_role("link", name="all runs").click()
    expect(rows).to_have_count(3)


def test_filter_order_groups_and_curves_are_in_the_link(watched: Watched) -> None:
    """Goal: a copied link shows the same. Method: everything is chosen with mouse and keys, then the URL is opened anew."""
    page = watched.open("#/a/runs:runs")
    expect(page.locator("tr[data-run]")).to_have_count(3)
    page.get_by_role("button", name="Loss").click()
    page.get_by_role("button", name="Loss").click()
    page.get_by_label("Group by").select_option("policy.stop_at")
    page.get_by_label("Curve").select_option("step_time")
    page.get_by_label("Draw bare").uncheck()
    expect(page.locator(".overlay")).to_have_attribute("data-runs", "2")
    page.keyboard.press("/")
    page.keyboard.type("policy.stop_at= ended")
    expect(page).to_have_url(re.compile("find="))
    page.keyboard.press("Enter")
    for _ in range(2):
        expect(page.locator("tbody[data-group]")).to_have_count(3)
        expect(page.locator("tbody[data-group]").first).to_have_attribute("data-group", "6")
        expect(page.locator("th[aria-sort=descending]")).to_have_text("Loss")
        expect(page.locator(".overlay")).to_have_attribute("data-curve", "step_time")
        expect(page.locator(".overlay")).to_have_attribute("data-runs", "2")
        page = watched.open("#" + page.url.partition("#")[2])
    page.get_by_label("Filter: words").fill("counted")
    expect(page.locator("tr[data-run]")).to_have_count(1)
    page.get_by_role("button", name="Draw the first").click()
    expect(page).not_to_have_url(re.compile("over="))


def test_ten_are_drawn_at_most_a_damaged_one_says_why_and_names_stay_text(
    browser: Browser, many_address: str
) -> None:
    with watching(browser, many_address, scheme="dark") as watched:
        page = watched.open("#/a/runs:runs")
        expect(page.locator("tr[data-run]")).to_have_count(MANY)
        expect(page.locator("tr[data-run='run:runs/zz'] .fail")).to_be_visible()
        assert page.locator("th img").count() == 0
        assert "owned" not in page.title()
        for number in range(MANY - 2):
            page.get_by_label(f"Draw r{number:02}").check()
        expect(page.locator(".overlay")).to_have_attribute("data-runs", "10")
        expect(page.get_by_label("Draw r11")).to_be_checked()
        expect(page.get_by_label("Draw r01")).not_to_be_checked()
        page = watched.open("#/a/runs:nowhere")
        expect(page.locator(".failed")).to_contain_text("there is no 'nowhere' below")
        page = watched.open("#/a/runs:registry")
        expect(page.locator(".state")).to_contain_text("There are no runs in this folder")
        watched.complaints[:] = [words for words in watched.complaints if "422" not in words]


def test_a_run_that_goes_on_is_seen_without_a_reload(
    browser: Browser, runs_folder: Path, tmp_path: Path
) -> None:
    """Goal: live. Method: a folder whose run appears, and is drawn, after the page was opened."""
    shutil.copytree(runs_folder / "runs/bare", tmp_path / "runs/first")
    shutil.copytree(runs_folder / "registry", tmp_path / "registry")
    with serving(tmp_path) as (address, _), watching(browser, address) as watched:
        page = watched.open("#/a/runs:runs")
        expect(page.locator("tr[data-run]")).to_have_count(1)
        shutil.copytree(runs_folder / "runs/counted", tmp_path / "runs/second")
        page.keyboard.press("r")
        expect(page.locator("tr[data-run]")).to_have_count(2)
        expect(page.locator(".overlay")).to_have_attribute("data-runs", "2")
