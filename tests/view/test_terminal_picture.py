"""The picture of the terminal view in the documents shows what the view shows now."""

import html
import re
import subprocess
import sys
from pathlib import Path


def written(picture: Path) -> list[str]:
    """The lines of text in a picture."""
    texts = re.findall(r"<text[^>]*>(.*?)</text>", picture.read_text(), flags=re.DOTALL)
    return [html.unescape(text).replace("\xa0", " ") for text in texts]


def test_the_picture_in_the_documents_is_drawn_by_the_view(root: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "drawn.svg"
    subprocess.run([sys.executable, "-m", "workshop.terminal_picture", str(drawn)], cwd=root, check=True)
    kept = root / "docs/images/terminal-batch.svg"
    assert written(drawn) == written(kept), "python -m workshop.terminal_picture draws it again"
    assert "http" not in re.sub(
        r"http://www.w3.org/[^\"]*|https?://www.textualize[^\s]*", "", kept.read_text()
    )
