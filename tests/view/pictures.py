"""``python -m tests.view.pictures docs/images``: takes the pictures of the documents anew, from the exhibit, in a real Chromium."""

import io
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser
from rich.console import Console

from penstock.cli.live.run_picture import picture
from penstock.cli.live.run_view import RunChoice, WatchedRun
from tests.view.browsing import chromium, watching
from tests.view.exhibit import make_exhibit
from tests.view.run_exhibit import make_runs
from tests.view.serving import serving

#: The terminal in the picture of ``top``.
TOP_COLUMNS, TOP_LINES = 110, 30


@dataclass(frozen=True)
class Picture:
    """What a picture shows."""

    name: str
    route: str
    #: What has to be there before it is taken.
    sign: str
    scheme: str = "light"
    height: int = 720
    #: What stands at the top of it, where that is not the top of the page.
    scroll_to: str = ""


PICTURES = (
    Picture("web-rows", "#/a/web@2/row/12", ".row-panel .field"),
    Picture("web-batch", "#/a/recipe.toml%23step=2,row=3,token=40", ".token-panel .stage"),
    Picture("web-loss", "#/a/chat.toml%23step=1,row=2,token=60?by=loss", ".token-panel .stage", "dark"),
    Picture("web-diff", "#/diff?a=recipe.toml%23step=2&b=edited.toml%23step=2", ".pane .tk.chosen"),
)
RUN_PICTURES = (
    Picture("web-run", "#/a/run:runs/slow", ".chart canvas", height=868),
    Picture("web-ledger", "#/a/run:runs/slow", ".heat-map", "dark", height=560, scroll_to=".ledger"),
    Picture(
        "web-runs", "#/a/runs:runs?group=policy.stop_at&over=slow,counted,bare", ".overlay canvas", height=820
    ),
)


def take(folder: Path, browser: Browser, address: str, pictures: Sequence[Picture] = PICTURES) -> list[Path]:
    """Take pictures into a folder, from a server that shows the exhibit, or runs."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = []
    for wanted in pictures:
        with watching(browser, address, width=1160, height=wanted.height, scheme=wanted.scheme) as watched:
            page = watched.open(wanted.route)
            page.locator(wanted.sign).first.wait_for()
            page.wait_for_load_state("networkidle")
            if wanted.scroll_to:
                page.locator(wanted.scroll_to).evaluate("element => element.scrollIntoView()")
            path = folder / f"{wanted.name}.png"
            page.screenshot(path=path)
            taken.append(path)
    return taken


def draw_top(folder: Path, runs: Path) -> Path:
    """The picture of ``penstock top`` in a terminal, as it is drawn there."""
    views = [WatchedRun(runs / name).look() for name in ("slow", "counted")]
    console = Console(record=True, width=TOP_COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in picture(views, RunChoice(), TOP_COLUMNS, TOP_LINES):
        console.print(line)
    path = folder / "terminal-top.svg"
    drawn = console.export_svg(title="penstock top runs/slow runs/counted")
    # Fonts of another host are not asked for: what is installed does.
    path.write_text(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))
    return path


def main(folder: Path) -> None:
    """Make the exhibit, show it, and take the pictures."""
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as place, chromium(program) as browser:
        (Path(place) / "runs").mkdir()
        shows = (
            (make_exhibit(Path(place) / "exhibit").folder, PICTURES),
            (make_runs(Path(place) / "runs"), RUN_PICTURES),
        )
        for shown, pictures in shows:
            with serving(shown) as (address, _):
                for path in take(folder, browser, address, pictures):
                    print(path)
        print(draw_top(folder, Path(place) / "runs/runs"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
