"""The pictures of the documents can be taken again, and there are no others."""

import re
import struct
import zlib
from pathlib import Path

from tests.view.pictures import PICTURES, take


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
    root: Path, tmp_path: Path, chromium_path: str
) -> None:
    named = {
        Path(name).name
        for page in (root / "docs").rglob("*.md")
        for name in re.findall(r"images/[\w.-]+\.png", page.read_text())
    }
    kept = {path.name for path in (root / "docs/images").glob("*.png")}

    taken = take(tmp_path, chromium_path)

    assert named == kept == {path.name for path in taken} == {f"{each.name}.png" for each in PICTURES}
    for path in taken:
        assert len(set(lines_of(path))) > 100, f"{path.name} is blank"
    assert sum(path.stat().st_size for path in (root / "docs/images").glob("*.png")) < 1_000_000
