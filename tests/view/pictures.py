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
from rich.text import Text

from penstock.cli.live.host_picture import cells_of, worst_cell
from penstock.cli.live.host_picture import picture as hosts_picture
from penstock.cli.live.host_view import HostView
from penstock.cli.live.run_picture import picture
from penstock.cli.live.run_view import RunChoice, WatchedRun
from penstock.cli.simulate.request import Cluster, Lives, Request, Times, plan_of
from penstock.report.hosts.playback import Playback
from penstock.report.hosts.simulated_job import SimulatedJob
from tests.view.browsing import chromium, watching
from tests.view.exhibit import make_exhibit
from tests.view.playing import PROFILE, playing
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
#: A moment at which hosts of a rack are unheard, of imagined jobs of so many hosts and racks.
HOST_JOBS = (
    (("--hosts", "2048", "--spare-hosts", "16", "--racks", "64", "--for", "20d"), "web-hosts", "light"),
    (
        ("--hosts", "100000", "--spare-hosts", "64", "--racks", "3125", "--for", "2d"),
        "web-hosts-many",
        "dark",
    ),
)
#: Terminals that the pictures of hosts show.
HOST_TERMINALS = (("terminal-hosts", 80, 24), ("terminal-hosts-wide", 132, 36))
#: After a rack has failed: it is unheard, and its lease is not over.
_AFTER_FAULT_S = 12


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
    lines = picture(views, RunChoice(), TOP_COLUMNS, TOP_LINES)
    return _svg(folder / "terminal-top.svg", lines, TOP_COLUMNS, "penstock top runs/slow runs/counted")


def rack_fault(words: Sequence[str], folder: Path) -> tuple[SimulatedJob, float]:
    """The job of these words, and a moment shortly after a rack of it has failed."""
    (folder / "racks.toml").write_text(PROFILE)
    told = dict(zip(words[::2], words[1::2], strict=True))
    cluster = Cluster(
        hosts=int(told["--hosts"]), spare_hosts=int(told["--spare-hosts"]), racks=int(told["--racks"])
    )
    lives = Lives(faults=[str(folder / "racks.toml")])
    job = SimulatedJob(plan_of(Request(cluster, Times(for_=told["--for"]), lives)))
    faults = [event.at_s for event in job.events() if event.kind == "fault"]
    return job, round(faults[len(faults) // 2] + _AFTER_FAULT_S)


def take_hosts(folder: Path, browser: Browser, place: Path) -> list[Path]:
    """The page of hosts while a rack fails."""
    taken = []
    for words, name, scheme in HOST_JOBS:
        _, moment_s = rack_fault(words, place)
        route = f"#/hosts/simulation?at={moment_s:.0f}"
        with playing(place, *words) as address:
            taken += take(
                folder, browser, address, [Picture(name, route, ".host-troubled li", scheme, height=900)]
            )
    return taken


def draw_hosts(folder: Path, place: Path) -> list[Path]:
    """``penstock simulate --watch`` in terminals of two sizes, while a rack fails; ``top`` looks the same."""
    job, moment_s = rack_fault(HOST_JOBS[0][0], place)
    snapshot = job.look(moment_s)
    drawn = []
    for name, columns, lines in HOST_TERMINALS:
        screen, view = (columns, lines), HostView()
        cells = cells_of(view, snapshot, screen)
        view = view.after("worst", cells, worst_cell(snapshot, cells))
        shown = hosts_picture(
            job.title,
            snapshot,
            view,
            screen=screen,
            events=job.events(moment_s)[-64:],
            playback=Playback(job.length_s),
        )
        drawn.append(_svg(folder / f"{name}.svg", shown, columns, "penstock simulate --watch"))
    return drawn


def _svg(path: Path, lines: Sequence[Text], columns: int, title: str) -> Path:
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(line)
    # Fonts of another host are not asked for: what is installed does.
    path.write_text(re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.DOTALL))
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
        for path in (*take_hosts(folder, browser, Path(place)), *draw_hosts(folder, Path(place))):
            print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
