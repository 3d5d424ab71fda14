"""The page of a batch in a real Chromium: tokens, keys, origins, lanes, differences, large batches, and under a proxy."""

import http.client
import re
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

import penstock as ps
from penstock.run import Policy
from penstock.view.model import pack, unpack
from tests.run.small import make, start
from tests.torch.stream import Stream
from tests.view.browsing import Watched, watching
from tests.view.exhibit import Exhibit, add_large
from tests.view.pictures import HOST_JOBS, PICTURES, RUN_PICTURES, take, take_hosts
from tests.view.serving import serving

PREFIX = "/user/ada/proxy/8090"


def at_rest(page: Page, route: str) -> None:
    """The URL is this one."""
    page.wait_for_function("route => decodeURIComponent(location.hash) === route", arg=route)


def row_text(page: Page) -> str:
    """The text of the tokens that can be seen, in order."""
    return page.locator(".grid-room").evaluate(
        "room => [...room.querySelectorAll('.tk')].sort((a, b) => a.dataset.at - b.dataset.at).map(t => t.textContent).join('')"
    )


def test_the_grid_shows_the_tokens_of_the_step(shown: Watched, folder: Path) -> None:
    """Goal: what the model sees. Method: the text on the page is what the tokenizer makes of the batch's tokens."""
    from tokenizers import Tokenizer

    page = shown.open("#/a/recipe.toml%23step=2")
    expect(page.locator(".grid-line").first).to_be_visible()

    registry = ps.Registry(folder / "registry")
    batch = ps.batch_at(ps.Recipe.load(folder / "recipe.toml"), step=2, registry=registry)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    said = tokenizer.decode(batch["tokens"][0].tolist(), skip_special_tokens=False)
    assert row_text(page).startswith(said.replace("\n", "⏎").replace("\t", "⇥")[:400])
    expect(page.locator(".facts")).to_contain_text(batch.digest[:12])
    expect(page.locator(".facts")).to_contain_text(f"{int(batch['loss_mask'].sum()):,} in the loss")
    assert page.locator(".tk").count() < 3_000


def test_a_token_is_chosen_by_a_click_and_its_origin_is_a_click_away(shown: Watched) -> None:
    page = shown.open("#/a/recipe.toml%23step=2")

    page.locator(".tk[data-at='40']").click()

    at_rest(page, "#/a/recipe.toml#step=2,row=0,token=40")
    panel = page.locator(".token-panel")
    expect(panel).to_contain_text("row 0, token 40")
    expect(panel.locator(".stage")).to_have_count(4)
    named = [heading.split()[0] for heading in panel.locator(".stage h4").all_inner_texts()]
    assert named == ["raw", "templated", "tokens", "model"]
    chosen = panel.locator(".token-text").inner_text()
    here = panel.locator(".here").all_inner_texts()
    assert [text.strip() for text in here[:3]] == [chosen.strip()] * 3
    panel.locator(".stage-tokens").first.locator("button").nth(5).click()
    expect(panel).to_contain_text("row 0, token 5")
    expect(page.locator(".tk.chosen")).to_have_attribute("data-at", "5")
    origin = panel.locator(".origin-line a").inner_text()
    page.keyboard.press("o")
    at_rest(page, f"#/a/{origin}")
    expect(page.locator(".row-panel")).to_be_visible()
    page.go_back()
    expect(page.locator(".tk.chosen")).to_be_visible()


def test_hovering_says_where_a_token_is_from(shown: Watched) -> None:
    page = shown.open("#/a/recipe.toml%23step=2")

    page.locator(".tk[data-at='7']").hover()

    expect(page.locator(".token-tip")).to_contain_text("token 7 of row 0")
    expect(page.locator(".token-tip")).to_contain_text("/row/")


def test_the_keyboard_walks_tokens_rows_documents_and_steps(shown: Watched) -> None:
    page = shown.open("#/a/recipe.toml%23step=2,row=1,token=5")
    expect(page.locator(".tk.chosen")).to_be_visible()

    page.keyboard.press("ArrowRight")
    page.keyboard.press("j")
    at_rest(page, "#/a/recipe.toml#step=2,row=2,token=6")
    page.keyboard.press("]")
    expect(page.locator(".tk.chosen.begins")).to_be_visible()
    page.keyboard.press("[")
    at_rest(page, "#/a/recipe.toml#step=2,row=2,token=0")
    page.keyboard.press("n")
    expect(page.get_by_label("Step", exact=True)).to_have_value("3")
    at_rest(page, "#/a/recipe.toml#step=3,row=2,token=0")
    page.keyboard.press("p")
    at_rest(page, "#/a/recipe.toml#step=2,row=2,token=0")
    page.keyboard.press("Escape")
    at_rest(page, "#/a/recipe.toml#step=2")
    page.keyboard.press("s")
    page.keyboard.type("7")
    page.keyboard.press("Enter")
    at_rest(page, "#/a/recipe.toml#step=7")
    expect(page.get_by_label("Step", exact=True)).to_have_value("7")
    page.keyboard.press("?")
    for words in ("Next step", "Colour by the next thing", "Rank lens", "Open the origin"):
        expect(page.get_by_role("dialog")).to_contain_text(words)


def test_colours_and_ids_are_part_of_the_link(shown: Watched) -> None:
    page = shown.open("#/a/chat.toml%23step=1?by=loss")
    expect(page.locator(".tk.loss-1").first).to_be_visible()
    assert page.locator(".tk.loss-0").count() > 0

    page.keyboard.press("i")
    expect(page.locator(".tk small").first).to_be_visible()
    page.keyboard.press("c")
    at_rest(page, "#/a/chat.toml#step=1?by=source&ids=1")
    page.reload()
    expect(page.locator(".tk.src-0 small").first).to_be_visible()


def test_the_loss_is_counted_by_source_and_by_role(shown: Watched, folder: Path) -> None:
    page = shown.open("#/a/chat.toml%23step=1")

    registry = ps.Registry(folder / "registry")
    batch = ps.batch_at(ps.Recipe.load(folder / "chat.toml"), step=1, registry=registry)
    shares = page.locator(".shares").filter(has_text="By source")
    expect(shares.locator("td.number").first).to_have_text(f"{int(batch['loss_mask'].sum()):,}")
    roles = page.locator(".shares").filter(has_text="By role")
    expect(roles.locator("tr")).to_have_count(4)
    table = {
        row.locator("th").inner_text().strip(): row.locator("td.number").first.inner_text()
        for row in roles.locator("tr").all()
    }
    assert set(table) == {"system", "user", "assistant", "template"}
    assert (table["user"], table["system"]) == ("0", "0")
    assert int(table["assistant"].replace(",", "")) > 100


def test_the_overview_and_the_packing_lead_to_places(shown: Watched) -> None:
    page = shown.open("#/a/recipe.toml%23step=2")
    expect(page.locator(".grid-line").first).to_be_visible()
    overview = page.locator(".overview")
    box = overview.bounding_box()
    assert box is not None

    overview.click(position={"x": box["width"] / 2, "y": box["height"] * 10.5 / 16})

    at_rest(page, "#/a/recipe.toml#step=2,row=10,token=128")
    expect(page.locator(".tk.chosen")).to_be_in_viewport()
    expect(page.locator(".packing h3")).to_contain_text("Row 10:")
    page.locator(".packing ol button").nth(1).click()
    expect(page.locator(".tk.chosen.begins")).to_be_visible()
    colours = page.evaluate(
        """() => [...document.querySelectorAll(".overview canvas, .blocks canvas")].map(canvas =>
            new Set(new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size)"""
    )
    assert min(colours) > 2


def test_the_lens_shows_what_every_lane_gets(shown: Watched) -> None:
    page = shown.open("#/a/recipe.toml%23step=2")
    expect(page.locator(".grid-line").first).to_be_visible()

    page.keyboard.press("l")
    expect(page.locator(".lane")).to_have_count(4)
    page.locator(".lens-asking input").nth(0).fill("8")
    page.locator(".lens-asking input").nth(1).fill("2")
    page.get_by_role("button", name="Look").click()
    expect(page.locator(".lane")).to_have_count(8)
    expect(page.locator(".verdicts li.ok")).to_have_count(4)
    page.locator(".lane").nth(3).get_by_role("link", name="row 1").click()
    at_rest(page, "#/a/recipe.toml#step=2,lane=3/8,row=1")
    expect(page.locator(".facts")).to_contain_text("lane 3/8")


def test_two_steps_are_compared_token_by_token(shown: Watched) -> None:
    page = shown.open("#/diff?a=recipe.toml%23step=2&b=edited.toml%23step=2")

    expect(page.locator(".verdict")).to_contain_text("of 4,096 differ")
    expect(page.locator(".pane")).to_have_count(2)
    page.get_by_role("button", name="Where do the recipes part?").click()
    expect(page.locator(".recipes")).to_contain_text(
        "The first step that differs is step 2, after 0 equal ones."
    )
    expect(page.locator(".recipes dt").first).to_be_visible()
    first = page.locator(".pane").nth(0).locator(".tk.chosen")
    place = first.get_attribute("data-at")
    page.keyboard.press("n")
    page.wait_for_function(
        "place => document.querySelector('.pane .tk.chosen').dataset.at !== place", arg=place
    )
    assert "differs" in (page.locator(".pane").nth(0).locator(".tk.chosen").get_attribute("class") or "")
    page.get_by_label("The other address").fill("recipe.toml#step=2")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator(".verdict")).to_contain_text("equal, token by token")
    expect(page.locator(".tk.differs")).to_have_count(0)


def test_columns_of_numbers_are_strips_under_the_tokens(shown: Watched) -> None:
    """Method: the columns of a real batch, with logprobs beside them as a recipe for reinforcement learning has."""

    def enrich(route: Route) -> None:
        facts, columns = unpack(route.fetch().body())
        shape = columns["tokens"].shape
        columns["logprob"] = -np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 100
        columns["advantage"] = np.where(columns["loss_mask"] > 0, 1.0, -1.0)
        columns["advantage"][0, 3] = np.nan
        route.fulfill(body=pack(facts, columns), content_type="application/octet-stream")

    shown.page.route("**/api/batch?*", enrich)
    page = shown.open("#/a/chat.toml%23step=1,row=0,token=3?by=advantage")

    expect(page.locator(".tk.level-0").first).to_be_visible()
    expect(page.locator(".tk.level-8").first).to_be_visible()
    expect(page.locator(".tk.level-none")).to_have_count(1)
    page.get_by_label("logprob").check()
    expect(page.locator(".tk u").first).to_be_visible()
    expect(page.locator(".token-facts")).to_contain_text("logprob-0.030000")
    at_rest(page, "#/a/chat.toml#step=1,row=0,token=3?by=advantage&columns=logprob")


def test_records_show_pictures_and_where_they_came_from(shown: Watched) -> None:
    page = shown.open("#/a/pictures.toml%23step=1")

    expect(page.locator(".record")).to_have_count(4)
    page.wait_for_function(
        "() => [...document.querySelectorAll('.record img')].every(i => i.naturalWidth === 96)"
    )
    page.locator(".record h3 a").first.click()
    expect(page.locator(".row-panel img")).to_be_visible()


def test_a_batch_that_is_cut_says_what_is_missing(shown: Watched) -> None:
    page = shown.open("#/a/recipe.toml%23step=2?rows=4:9")

    expect(page.locator(".tools .cut")).to_contain_text("rows 4:9 of 16")
    expect(page.locator(".gutter.row-start").first).to_have_text("row 4")
    page.get_by_role("button", name="further rows").click()
    expect(page.locator(".tools .cut")).to_contain_text("rows 9:14 of 16")


def test_half_a_million_tokens_are_shown(shown: Watched, exhibit: Exhibit) -> None:
    """Goal: 64 rows of 8,192 tokens in one page; how quickly is measured in benchmarks/bench_web.py."""
    name = add_large(exhibit)
    page = shown.open(f"#/a/{name}%23step=0")

    expect(page.locator(".facts")).to_contain_text("64 × 8,192 tokens")
    expect(page.locator(".grid-line").first).to_be_visible()
    assert page.locator(".tk").count() < 3_000
    page.locator(".grid").evaluate("grid => { grid.scrollTop = grid.scrollHeight }")
    expect(page.locator(f".tk[data-at='{64 * 8192 - 1}']")).to_be_visible()
    page.goto(f"{shown.base}#/a/{name}%23step=0,row=40,token=5000")
    expect(page.locator(f".tk.chosen[data-at='{40 * 8192 + 5000}']")).to_be_in_viewport()


@contextmanager
def reverse_proxy(target: str, *, strips: bool) -> Iterator[str]:
    """A proxy in front of many services: knows ours by a prefix and by its own name, and answers 404 beside it."""
    parts = urlsplit(target)

    class Passing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if not self.path.startswith(PREFIX + "/"):
                self.send_error(404)
                return
            upstream = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
            path = self.path.removeprefix(PREFIX) if strips else self.path
            upstream.request("GET", path, headers={**self.headers, "Connection": "close"})
            answer = upstream.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            upstream.close()

        def log_message(self, *words: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Passing) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://hub.localhost:{server.server_address[1]}{PREFIX}/"
        finally:
            server.shutdown()
            thread.join(30)


@pytest.mark.parametrize("strips", [True, False])
def test_behind_a_proxy_everything_stays_below_its_prefix(
    browser: Browser, exhibit: Exhibit, strips: bool
) -> None:
    options = ["--allow-host", "hub.localhost", "--prefix", PREFIX]
    with serving(exhibit.folder, *options) as (address, _), reverse_proxy(address, strips=strips) as front:
        token = urlsplit(address).query
        with watching(browser, f"{front}?{token}") as watched:
            page = watched.open("#/a/pictures@1/row/3")
            page.wait_for_function("() => document.querySelector('.row-panel img')?.naturalWidth === 96")
            watched.open("#/a/recipe.toml%23step=1,row=2,token=3")
            expect(page.locator(".tk.chosen")).to_be_visible()
            page.reload()
            expect(page.locator(".tk.chosen")).to_be_visible()

            assert [url for url in watched.asked if not url.startswith(front)] == []


def test_a_proxy_whose_name_was_not_given_is_refused(browser: Browser, exhibit: Exhibit) -> None:
    with (
        serving(exhibit.folder, "--prefix", PREFIX) as (address, _),
        reverse_proxy(address, strips=True) as front,
        watching(browser, front) as watched,
    ):
        page = watched.open()
        expect(page.locator("body")).to_contain_text("--allow-host")
        watched.complaints.clear()  # the browser notes the 403


def test_a_run_is_looked_at_while_it_runs(browser: Browser, stream: Stream, tmp_path: Path) -> None:
    """Goal: what a rank has in its hands, and what its loop shows. Method: a real run in this process, which waits meanwhile."""
    run, state = make(stream, tmp_path / "exp", Policy(stop_at=3)), start()
    steps = run.steps(state)
    next(steps)
    step, batch = next(steps)
    ids = batch["tokens"].astype(np.int64)
    assert ps.tap("in-the-browser", {"input_ids": ids, "logprobs": -np.ones(ids.shape) * ids}, step=step)

    with serving(tmp_path) as (address, _), watching(browser, address) as watched:
        page = watched.open("#/a/run:exp?view=batch")
        expect(page.locator(".live")).to_contain_text(f"rank 0: step {step}, as rebuilt here")
        expect(page.get_by_label("Step", exact=True)).to_have_value(str(step))
        expect(page.locator(".facts")).to_contain_text(batch.digest[:12])
        page.locator(".live .tab").first.click()
        page.get_by_role("button", name="logprobs").first.click()
        expect(page.locator(".tk.level-0, .tk.level-8").first).to_be_visible()
        page.locator(".tk").nth(3).click()
        expect(page.locator(".token-facts")).to_contain_text(f"logprobs-{int(ids.reshape(-1)[3]):,}")
    assert [number for number, _ in steps] == [step + 1]


def lines_of(path: Path) -> list[bytes]:
    """The lines of a PNG, as they are stored; enough to tell a picture from a blank."""
    data, at, body = path.read_bytes(), 8, b""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at : at + 8])
        body += data[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += length + 12
    raw = zlib.decompress(body)
    step = 1 + width * {2: 3, 6: 4}[kind] * depth // 8
    assert len(raw) == step * height
    return [raw[line * step : (line + 1) * step] for line in range(height)]


def test_every_picture_of_the_documents_is_produced_and_not_blank(
    root: Path, tmp_path: Path, browser: Browser, exhibit_address: str, runs_address: str
) -> None:
    named = {
        Path(name).name
        for page in (root / "docs").rglob("*.md")
        for name in re.findall(r"images/[\w.-]+\.png", page.read_text())
    }
    kept = {path.name for path in (root / "docs/images").glob("*.png")}

    taken = take(tmp_path, browser, exhibit_address) + take(tmp_path, browser, runs_address, RUN_PICTURES)
    taken += take_hosts(tmp_path, browser, tmp_path)

    assert named == kept == {path.name for path in taken}
    assert kept == {
        *(f"{picture.name}.png" for picture in (*PICTURES, *RUN_PICTURES)),
        *(f"{name}.png" for _, name, _ in HOST_JOBS),
    }
    for path in taken:
        assert len(set(lines_of(path))) > 100, f"{path.name} is blank"
    assert sum(path.stat().st_size for path in (root / "docs/images").glob("*.png")) < 1_000_000
