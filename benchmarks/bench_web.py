"""The batch page in a real Chromium: first paint after its data is there, renderer memory, and the weight of the bundle.

Half a million tokens: 64 rows of 8,192. The reference does what simple viewers do, a ``<span>`` for every token, with the same data
in the same browser.
"""

import gzip
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page
from tests.view.browsing import chromium
from tests.view.exhibit import add_large, make_exhibit
from tests.view.serving import serving

from benchmarks.table import Table
from penstock.view.web.server import STATIC

ROWS, LENGTH = 64, 8192
ROUNDS = 3
PATIENCE_MS = 180_000

_NAIVE = """async address => {
    const data = await (await fetch(`api/batch?address=${encodeURIComponent(address)}`)).arrayBuffer();
    const view = new DataView(data);
    const begin = 8 + view.getUint32(4, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 8, begin - 8)));
    const column = Object.fromEntries(header.columns.map(c => [c.name, c]));
    const text = new Uint8Array(data, begin + column.text.at, column.text.bytes);
    const ends = new Uint32Array(data, begin + column.text_ends.at, column.text_ends.bytes / 4);
    const decoder = new TextDecoder();
    const start = performance.now();
    const box = document.createElement("div");
    for (let index = 0, from = 0; index < ends.length; from = ends[index++]) {
        const span = document.createElement("span");
        span.className = `tk seg-${index % 6}`;
        span.textContent = decoder.decode(text.subarray(from, ends[index]));
        box.append(span);
    }
    document.querySelector("main").replaceChildren(box);
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    return performance.now() - start;
}"""


def run() -> Table:
    """Measure in one run."""
    claim = f"{ROWS} x {LENGTH:,} tokens are painted in under 300 ms after their data, in a renderer of under 400 MB"
    table = Table(claim, "ms")
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        exhibit = make_exhibit(Path(folder))
        address = f"{add_large(exhibit, rows=ROWS, length=LENGTH)}#step=0"
        with serving(exhibit.folder) as (url, _), chromium(program) as browser:
            naive_ms, naive_mb = _naive(browser, url, address)
            best = min(_page(browser, url, address) for _ in range(ROUNDS))
    painted_ms, loaded_ms, megabytes, elements = best
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    kilobytes = sum(len(gzip.compress(path.read_bytes())) for path in files) / 1e3
    table.add("every token a <span>", naive_ms, f"renderer {naive_mb:.0f} MB")
    table.add(
        "the batch page, after its data",
        painted_ms,
        f"renderer {megabytes:.0f} MB, {elements} elements for tokens",
    )
    table.add("asking for the data until it is there", loaded_ms, f"bundle {kilobytes:.0f} KB gzip")
    return table


def _naive(browser: Browser, url: str, address: str) -> tuple[float, float]:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{url}#/diff")
    page.locator(".state").wait_for()
    taken: float = page.evaluate(_NAIVE, address)
    memory = _renderer_mb(browser)
    page.close()
    return taken, memory


def _page(browser: Browser, url: str, address: str) -> tuple[float, float, float, int]:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{url}#/a/{address.replace('#', '%23')}")
    page.wait_for_function("() => performance.getEntriesByName('batch-painted').length > 0")
    marks = {name: _mark(page, name) for name in ("batch-asked", "batch-data", "batch-painted")}
    memory = _renderer_mb(browser)
    elements = page.locator(".tk").count()
    page.close()
    return (
        marks["batch-painted"] - marks["batch-data"],
        marks["batch-data"] - marks["batch-asked"],
        memory,
        elements,
    )


def _mark(page: Page, name: str) -> float:
    start_ms: float = page.evaluate("name => performance.getEntriesByName(name)[0].startTime", name)
    return start_ms


def _renderer_mb(browser: Browser) -> float:
    """Resident memory of the largest renderer, as the system counts it."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = [_resident_kb(process["id"]) for process in processes if process["type"] == "renderer"]
    return max(sizes, default=0) / 1e3


def _resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
