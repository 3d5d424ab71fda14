"""The hosts page in a real Chromium at 100,000 hosts: first paint after its data, how soon a change is seen, and the memory of the tab.

The hosts are imagined, all else is real: a leader's socket that answers as a leader does, ``penstock web`` that asks it, and a browser. A change
is a rack of 32 hosts that the leader tells of as unheard, and is seen when the page has painted it. The reference gives each host an element
of its own, as simple pages do.
"""

import json
import os
import shutil
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from tests.view.browsing import chromium
from tests.view.serving import serving

from benchmarks.table import Table

HOSTS, RACK = 100_000, 32
ROUNDS, CHANGES = 3, 8
PATIENCE_MS = 180_000
_NAIVE = """async count => {
    const start = performance.now();
    const box = document.createElement("div");
    for (let place = 0; place < count; place++) {
        const cell = document.createElement("span");
        cell.title = `host${place} here`;
        cell.textContent = "\u25a0";
        box.append(cell);
    }
    document.querySelector("main").replaceChildren(box);
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    return performance.now() - start;
}"""
_SEEN = (
    "count => performance.getEntriesByName('hosts-moved').filter(mark => mark.detail === 32).length > count"
)
_WHEN = "count => performance.timeOrigin + performance.getEntriesByName('hosts-moved').filter(mark => mark.detail === 32)[count].startTime"


class Leader:
    """A leader of imagined hosts; racks are unheard by turns."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(json.dumps({"id": folder.name, "roles": []}))
        (folder / "host.json").write_text(json.dumps({"name": "host000000", "nnodes": HOSTS}))
        self.head = {
            "term": 1,
            "leader": "host000000",
            "voters": ["host000000"],
            "lease_ms": 30_000,
            "list": 1,
        }
        self.whole = (
            json.dumps(self._said([self._row(rank, "here") for rank in range(HOSTS)])).encode() + b"\n"
        )
        self.silent: range = range(0)
        self.server = socket.socket(socket.AF_UNIX)
        directory = os.open(folder, os.O_RDONLY)
        self.server.bind(f"/proc/self/fd/{directory}/host.sock")
        os.close(directory)
        self.server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _row(self, rank: int, state: str) -> dict[str, Any]:
        return {
            "rank": rank,
            "name": f"host{rank:06}",
            "state": state,
            "slots": 8,
            "since_s": 3600.0 if state == "here" else 0.5,
            "rack": f"rack{rank // RACK:04}",
            "first_rank": 8 * rank,
            "late_beats": 0.0 if state == "here" else 1.5,
            "lease_left_s": 30.0,
        }

    def _said(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "ok": True,
            "rows": [{**self.head, "hosts": rows}],
            "account": {"asked": "0", "answered": "0"},
        }

    def _serve(self) -> None:
        while True:
            try:
                talk, _ = self.server.accept()
            except OSError:
                return
            with talk:
                question = json.loads(talk.makefile().readline())["ask"]
                talk.sendall(self._answer(question))

    def _answer(self, question: str) -> bytes:
        if question == "hosts":
            return self.whole
        rows = [] if question == "journal" else [self._row(rank, "unheard") for rank in self.silent]
        document = {"ok": True, "rows": [], "account": {}} if question == "journal" else self._said(rows)
        return json.dumps(document).encode() + b"\n"


def run() -> Table:
    """Measure in one run."""
    claim = (
        f"{HOSTS:,} hosts are painted < 300 ms after their data, a change is seen < 1 s, in a tab of < 200 MB"
    )
    table = Table(claim, "ms")
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "registry").mkdir()
        leader = Leader(place / "jobs" / "imagined")
        with serving(place) as (url, _), chromium(program) as browser:
            naive_ms, naive_mb = _naive(browser, url)
            rounds = [_page(browser, url, leader) for _ in range(ROUNDS)]
        leader.server.close()
    painted = sorted(one[0] for one in rounds)
    seen = sorted(ms for one in rounds for ms in one[1])
    megabytes, resident = max(one[2] for one in rounds)
    moved_bytes = statistics.median(one[3] for one in rounds)
    table.add("an element for each host", naive_ms, f"renderer {naive_mb:.0f} MB")
    table.add(
        "painted after its data, median",
        statistics.median(painted),
        f"worst {painted[-1]:.0f} ms; tab {megabytes:.0f} MB, {resident:.0f} MB with the code that all tabs share",
    )
    table.add(
        "a rack unheard at the leader, until it is painted, median",
        statistics.median(seen),
        f"worst {seen[-1]:.0f} ms of {len(seen)}; {moved_bytes:.0f} bytes travel",
    )
    return table


def _naive(browser: Browser, url: str) -> tuple[float, float]:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{url}#/nowhere")
    page.locator(".state").wait_for()
    taken: float = page.evaluate(_NAIVE, HOSTS)
    memory, _ = _renderer_mb(browser)
    page.close()
    return taken, memory


def _page(browser: Browser, url: str, leader: Leader) -> tuple[float, list[float], tuple[float, float], int]:
    leader.silent = range(0)
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    moved: list[int] = []
    page.on(
        "requestfinished",
        lambda request: moved.append(_bytes(request)) if "hosts/moves" in request.url else None,
    )
    page.goto(f"{url}#/hosts/imagined")
    page.wait_for_function("() => performance.getEntriesByName('hosts-painted').length > 0")
    painted_ms = _mark(page, "hosts-painted") - _mark(page, "hosts-data")
    seen_ms = []
    for number in range(CHANGES):
        # A rack is unheard, and then heard again: 32 hosts move each time.
        begun = 1e3 * time.time()
        leader.silent = range(RACK * number, RACK * (number + 1)) if number % 2 == 0 else range(0)
        page.wait_for_function(_SEEN, arg=number)
        seen_ms.append(float(page.evaluate(_WHEN, number)) - begun)
    memory = _renderer_mb(browser)
    page.close()
    return painted_ms, seen_ms, memory, max(moved, default=0)


def _renderer_mb(browser: Browser) -> tuple[float, float]:
    """The largest renderer: its share of memory, where what processes have in common is divided among them, and all that is resident."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = [_sizes_kb(process["id"]) for process in processes if process["type"] == "renderer"]
    share, resident = max(sizes, default=(0, 0))
    return share / 1e3, resident / 1e3


def _sizes_kb(pid: int) -> tuple[int, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return tuple(
        next(int(line.split()[1]) for line in lines if line.startswith(key)) for key in ("Pss:", "Rss:")
    )  # type: ignore[return-value]


def _bytes(request: Any) -> int:
    return int(request.sizes()["responseBodySize"])


def _mark(page: Page, name: str) -> float:
    start_ms: float = page.evaluate("name => performance.getEntriesByName(name)[0].startTime", name)
    return start_ms
