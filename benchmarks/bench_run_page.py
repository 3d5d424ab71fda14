"""The page of a long run in a real Chromium, and what watching a run of many ranks costs.

A million steps, 8 ranks, 50 lives: what the server answers is made from timelines in memory, as ``bench_ledger`` makes them, and given to the
page in the server's place. Its time is what it spends beside waiting for these answers, until everything is painted. Watching is measured on
real step files of 64 ranks, one of which goes on writing: the processor time of all looks over the time that passes.
"""

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Route
from tests.view.browsing import chromium
from tests.view.serving import serving

from benchmarks.bench_ledger import RANKS, STEPS, rank_timeline
from benchmarks.table import Table
from penstock.observe.steps.recorder import StepRecorder
from penstock.report.curves.live_screen import LiveScreen
from penstock.report.curves.run_screen import RunScreen
from penstock.report.curves.step_table import STEP_TIME, RunSteps
from penstock.report.run_report import Evidence, report_of
from penstock.view.address import RunAddress
from penstock.view.model.run_summary import summary_of
from penstock.view.web.content.runs import describe_curves, describe_heat_map, describe_run

#: Of the run that is watched.
WATCHED_RANKS, WATCHED_STEPS = 64, 2_000
WATCHED_S, EVERY_S = 60.0, 1.0
#: Scalars that the long run logged.
SCALARS = ("loss", "lr", "grad_norm")
ROUNDS = 3
PATIENCE_MS = 400_000
RUN = "run:long"
#: Milliseconds from the first answer to the painted page, without those in which it waited for its curves.
_SPENT = """() => {
    const asked = name => performance.getEntriesByType("resource").find(entry => entry.name.includes(name));
    const painted = performance.getEntriesByName("run-painted")[0].startTime;
    const [run, curves] = [asked("api/run?"), asked("api/run/curves")];
    return painted - run.responseEnd - (curves.responseEnd - curves.startTime);
}"""


def run() -> Table:
    """Measure in one run."""
    table = Table(
        "the page of 10^6 steps x 8 ranks x 50 lives paints in < 500 ms after its data; watching 64 ranks takes <= 5 % of a core",
        "ms",
    )
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "registry").mkdir()
        began = time.process_time()
        answers = _answers(place)
        made_ms = 1e3 * (time.process_time() - began)
        with serving(place) as (url, _), chromium(program) as browser:
            painted_ms = min(_page(browser, url, answers) for _ in range(ROUNDS))
        share, looks, dearest = _watched(place / "watched")
    kilobytes = sum(map(len, answers.values())) / 1e3
    table.add("the page, beside waiting for its data", painted_ms, f"{kilobytes:.0f} KB of answers")
    table.add("computing the answers, processor time", made_ms, "timelines in memory, which are made as well")
    table.add(
        f"watching {WATCHED_RANKS} ranks, processor ms a second",
        1e3 * share,
        f"{100 * share:.1f} % of a core, {looks} times computed in {WATCHED_S:.0f} s, {dearest:.2f} s each",
    )
    return table


def _answers(place: Path) -> dict[str, str]:
    """What the routes of the run answer."""
    evidence = Evidence("long", tuple(rank_timeline(rank) for rank in range(RANKS)))
    screen = RunScreen(place, "a signature", evidence, report_of(evidence))
    chance = np.random.default_rng(1)
    count = len(screen.report.steps[0].columns["step"])
    of_rank = {name: np.exp(-np.arange(count) / STEPS) + 0.1 * chance.random(count) for name in SCALARS}
    # As if they had been read from rows.
    screen.__dict__["steps"] = RunSteps(screen.report.steps, dict.fromkeys(range(RANKS), of_rank))
    address = RunAddress("long")
    documents: dict[str, Any] = {
        "api/run?": describe_run(screen, 1, address),
        "api/run/curves": describe_curves(screen, None, None),
        "api/run/heat": describe_heat_map(screen, STEP_TIME),
        "api/run/state": {"signature": "a signature", "is_running": False},
    }
    return {route: json.dumps(document) for route, document in documents.items()}


def _page(browser: Browser, url: str, answers: dict[str, str]) -> float:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(PATIENCE_MS)

    def answer(route: Route) -> None:
        body = next(body for name, body in answers.items() if name in route.request.url)
        route.fulfill(status=200, content_type="application/json", body=body)

    page.route("**/api/run?*", answer)
    page.route("**/api/run/*", answer)
    page.goto(f"{url}#/a/{RUN}")
    page.wait_for_function("() => performance.getEntriesByName('run-painted').length > 0")
    spent_ms: float = page.evaluate(_SPENT)
    page.close()
    return spent_ms


def _watched(folder: Path) -> tuple[float, int, float]:
    """Share of a core, computations, and seconds of the dearest."""
    (folder / "journal").mkdir(parents=True)
    recorders = [StepRecorder(folder, 0, rank) for rank in range(WATCHED_RANKS)]
    for recorder in recorders:
        for step in range(WATCHED_STEPS):
            _record(recorder, step)
        recorder.flush()
    for recorder in recorders[1:]:
        recorder.close()
    live = LiveScreen(folder)
    began, spent, step, seen, looks, dearest = time.monotonic(), 0.0, WATCHED_STEPS, None, 0, 0.0
    while time.monotonic() - began < WATCHED_S:
        _record(recorders[0], step)
        recorders[0].flush()
        step += 1
        before = time.process_time()
        screen = live.look()
        if screen is not seen:
            drawing = time.monotonic()
            summary_of(screen, RUN)
            screen.curves.to_json(buckets_max=140)
            screen.heat_map(STEP_TIME, 72)
            live.spend(time.monotonic() - drawing)
            seen, looks = screen, looks + 1
            dearest = max(dearest, time.process_time() - before)
        spent += time.process_time() - before
        time.sleep(EVERY_S)
    recorders[0].close()
    return spent / (time.monotonic() - began), looks, dearest


def _record(recorder: StepRecorder, step: int) -> None:
    recorder.begin(step)
    for part in ("forward", "backward"):
        with recorder.part(part):
            pass
    recorder.fact("tokens", 4096)
    recorder.scalar(step, "loss", 1 / (step + 1))
    recorder.end(step)
