"""``python -m tests.view.pictures docs/images``: takes the pictures of the documents anew, from the exhibit, in a real Chromium."""

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser

from tests.view.browsing import chromium, watching
from tests.view.exhibit import make_exhibit
from tests.view.serving import serving


@dataclass(frozen=True)
class Picture:
    """What a picture shows."""

    name: str
    route: str
    #: What has to be there before it is taken.
    sign: str
    scheme: str = "light"


PICTURES = (
    Picture("web-rows", "#/a/web@2/row/12", ".row-panel .field"),
    Picture("web-batch", "#/a/recipe.toml%23step=2,row=3,token=40", ".token-panel .stage"),
    Picture("web-loss", "#/a/chat.toml%23step=1,row=2,token=60?by=loss", ".token-panel .stage", "dark"),
    Picture("web-diff", "#/diff?a=recipe.toml%23step=2&b=edited.toml%23step=2", ".pane .tk.chosen"),
)


def take(folder: Path, browser: Browser, address: str) -> list[Path]:
    """Take all pictures into a folder, from a server that shows the exhibit."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = []
    for picture in PICTURES:
        with watching(browser, address, width=1160, height=720, scheme=picture.scheme) as watched:
            page = watched.open(picture.route)
            page.locator(picture.sign).first.wait_for()
            page.wait_for_load_state("networkidle")
            path = folder / f"{picture.name}.png"
            page.screenshot(path=path)
            taken.append(path)
    return taken


def main(folder: Path) -> None:
    """Make the exhibit, show it, and take the pictures."""
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as place:
        exhibit = make_exhibit(Path(place))
        with serving(exhibit.folder) as (address, _), chromium(program) as browser:
            for path in take(folder, browser, address):
                print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
