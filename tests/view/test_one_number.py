"""One number: p50, p99, tokens/s, MFU and goodput of one real run are equal on every screen.

``report --json`` has them whole; so have the answers for the page, ``top --json``, the painted page (in an attribute) and Prometheus. The words of
the terminal and of the page are those of the whole number, rounded in one way.
"""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from penstock.report.curves.run_screen import run_screen
from penstock.report.quantities import duration, percent, rate
from tests.process.jobs import wait_until
from tests.view.browsing import watching
from tests.view.serving import client_of, site_at

#: As the report calls them.
NUMBERS = ("p50_ns", "p99_ns", "tokens_per_s", "mfu", "goodput")
#: The same in Prometheus; times are in seconds there.
FAMILIES = {
    "p50_ns": 'penstock_run_step_seconds{quantile="0.5"}',
    "p99_ns": 'penstock_run_step_seconds{quantile="0.99"}',
    "tokens_per_s": "penstock_run_tokens_per_second",
    "mfu": "penstock_run_mfu_ratio",
    "goodput": "penstock_run_goodput_ratio",
}


def command(folder: Path, *words: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def numbers_of(document: Any) -> dict[str, float]:
    """From an object that has the parts of a report."""
    goodput = (
        document["ledger"]["goodput"] if "goodput" in document.get("ledger", {}) else document["goodput"]
    )
    speed = document["speed"]
    return {
        "p50_ns": speed["p50_ns"],
        "p99_ns": speed["p99_ns"],
        "tokens_per_s": speed["tokens_per_s"],
        "mfu": document["mfu"]["value"],
        "goodput": goodput["runtime"],
    }


@pytest.fixture(scope="module")
def reported(runs_folder: Path) -> dict[str, float]:
    """What ``report --json`` says; every one of them is a number."""
    numbers = numbers_of(json.loads(command(runs_folder, "report", "runs/counted", "--json")))
    assert all(isinstance(value, int | float) and value > 0 for value in numbers.values()), numbers
    assert list(numbers) == list(NUMBERS)
    return numbers


def test_top_and_the_answer_for_the_page_have_the_numbers_of_the_report(
    runs_folder: Path, reported: dict[str, float]
) -> None:
    top = json.loads(command(runs_folder, "top", "runs/counted", "--once", "--json"))
    client = client_of(site_at(runs_folder))
    page = client.get("/api/run", params={"address": "run:runs/counted"}).json()

    assert numbers_of(top["runs"][0]) == reported
    assert numbers_of(page) == reported


def test_the_curve_of_the_mfu_over_one_bucket_is_the_mfu(
    runs_folder: Path, reported: dict[str, float]
) -> None:
    """Goal: curve and number agree. Method: all steps in one bucket, whose value is a quotient of sums."""
    screen = run_screen(runs_folder / "runs/counted")
    (curve,) = screen.curves.to_json(buckets_max=1, names=["mfu"])["curves"]
    (line,) = curve["lines"]

    assert line["values"] == [pytest.approx(reported["mfu"], rel=1e-9)]
    assert line["low"][0] < reported["mfu"] < line["high"][0] <= 1


def test_the_terminal_has_their_words(runs_folder: Path, reported: dict[str, float]) -> None:
    report = command(runs_folder, "report", "runs/counted")
    top = command(runs_folder, "top", "runs/counted", "--once")

    assert f"p50 {duration(reported['p50_ns'])}, p99 {duration(reported['p99_ns'])}, " in report
    assert f"{rate(reported['tokens_per_s'])} tokens/s" in report
    assert f"MFU: {percent(reported['mfu'])}\n" in report
    assert f"goodput: runtime {percent(reported['goodput'])}" in report
    words = [
        rate(reported["tokens_per_s"]),
        *(percent(reported[name]) for name in ("mfu", "goodput")),
        *(duration(reported[name]) for name in ("p50_ns", "p99_ns")),
    ]
    assert re.search(r"\s+".join(map(re.escape, words)), top), top


def test_the_painted_page_has_them(browser: Browser, runs_address: str, reported: dict[str, float]) -> None:
    """Goal: what a person sees. Method: Chromium; whole numbers from the tiles, and the words that are painted."""
    with watching(browser, runs_address) as watched:
        page = watched.open("#/a/run:runs/counted")
        for name in NUMBERS:
            tile = page.locator(f".tiles [data-number={name}]")
            assert float(tile.get_attribute("data-value") or "nan") == reported[name]
        for name in ("mfu", "goodput"):
            expect(page.locator(f"[data-number={name}] .tile-value")).to_have_text(percent(reported[name]))
        expect(page.locator("[data-curve=mfu] canvas")).to_be_visible()
        page = watched.open("#/a/runs:runs")
        row = page.locator("tr[data-run='run:runs/counted']")
        for name in NUMBERS:
            assert (
                float(row.locator(f"[data-number={name}]").get_attribute("data-value") or "nan")
                == reported[name]
            )


def test_prometheus_has_them(runs_folder: Path, reported: dict[str, float]) -> None:
    families = {}
    for line in scraped(runs_folder, "runs/counted").splitlines():
        if not line.startswith("#") and " " in line:
            name, value = line.rsplit(" ", 1)
            families[_bare(name)] = float(value)

    for name, family in FAMILIES.items():
        shown = families[family] * (1e9 if name.endswith("_ns") else 1)
        assert shown == pytest.approx(reported[name], rel=1e-12)


def scraped(folder: Path, run: str) -> str:
    """What Prometheus would read of a run."""
    words = [sys.executable, "-m", "penstock.cli.main", "runs", "watch", run, "--serve", "127.0.0.1:0"]
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as watcher:
        try:
            assert watcher.stderr is not None
            address = watcher.stderr.readline().decode().removeprefix("serving ").strip()
            answers = [""]

            def has_figures() -> bool:
                with urllib.request.urlopen(address, timeout=60) as answer:
                    answers.append(answer.read().decode())
                return "penstock_run_step_seconds{" in answers[-1]

            wait_until(has_figures, "figures of the run")
            return answers[-1]
        finally:
            watcher.terminate()


def _bare(name: str) -> str:
    """A series without labels that say which run it is of."""
    family, _, labels = name.partition("{")
    quantile = re.search(r'quantile="[^"]*"', labels)
    return family if quantile is None else f"{family}{{{quantile[0]}}}"
