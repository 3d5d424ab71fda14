"""The map in ARCHITECTURE.md and the tree on disk agree: every room is on the map, and whatever the page names exists."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = "ARCHITECTURE.md"
_MAP = re.compile(r"^## Rooms\n+```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^( *)([\w./-]+)/(?:  +(.*))?$")
#: Folders that a line names in passing: ``text/ lines without a screen``.
_INLINE = re.compile(r"(?<![\w/])(\w+)/(?![\w/])")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"^[\w.*-]+(/[\w.*-]+)+/?$")
_SUFFIXES = ("", ".py", ".rs", "/mod.rs")
#: A Rust folder belongs to the file of the same name; one with fewer modules than this is a part of it and no room.
_RUST_MODULES_MIN = 3


def rooms_on_the_map(text: str) -> set[str]:
    """Folders, from the root, that the map has a line for or names in one."""
    block = _MAP.search(text)
    assert block is not None, "there is no map"
    rooms: set[str] = set()
    above: list[str] = []
    for line in block[1].splitlines():
        entry = _ENTRY.match(line)
        assert entry is not None, f"not of the form `folder/  what lives there`: {line!r}"
        above = [*above[: len(entry[1]) // 2], entry[2]]
        crate = above[0] == "crates" and len(above) > 2
        folder = "/".join([*above[:2], "src", *above[2:]] if crate else above)
        rooms.add(folder)
        if above[0] == "python/penstock" and len(above) > 1:
            rooms |= {
                f"{folder}/{name}" for name in _INLINE.findall(entry[3] or "") if f"{name}" not in above
            }
    return rooms


def rooms_on_disk(tree: Path) -> set[str]:
    """Folders of the package that have modules, and of the crates that have several."""
    rooms = {path.parent for path in (tree / "python/penstock").rglob("*.py")}
    for source in (tree / "crates").glob("*/src"):
        rooms.add(source.parent)
        for folder in filter(Path.is_dir, source.iterdir()):
            modules = [path for path in folder.glob("*.rs") if path.stem != "tests"]
            if len(modules) >= _RUST_MODULES_MIN:
                rooms.add(folder)
    return {str(room.relative_to(tree)) for room in rooms}


def named_paths(text: str) -> set[str]:
    """What stands in backticks and looks like a file or a folder of ours."""
    names = {name for name in _QUOTED.findall(_FENCE.sub("", text)) if _PATH.match(name)}
    return {name.rstrip("/") for name in names}


def exists(tree: Path, name: str) -> bool:
    """Paths are written from the root, from the package, from crates/, or from the src of the crate that a flow is about."""
    places = ["", "python/penstock/", "crates/", "crates/*/src/"]
    return any(next(tree.glob(f"{place}{name}{suffix}"), None) for place in places for suffix in _SUFFIXES)


def complaints(tree: Path) -> list[str]:
    """Where map and tree differ, and names that lead nowhere."""
    text = (tree / PAGE).read_text()
    on_map, on_disk = rooms_on_the_map(text), rooms_on_disk(tree)
    missing = [f"{room}: is not on the map" for room in sorted(on_disk - on_map)]
    gone = [f"{room}: is on the map and not on disk" for room in sorted(on_map) if not (tree / room).is_dir()]
    return (
        missing
        + gone
        + [f"{name}: leads nowhere" for name in sorted(named_paths(text)) if not exists(tree, name)]
    )


def test_the_map_is_the_tree() -> None:
    assert complaints(ROOT) == []


@pytest.mark.parametrize(
    ("line", "file", "complaint"),
    [
        ("", "python/penstock/data/cellar/wine.py", "python/penstock/data/cellar: is not on the map"),
        ("    attic/  things", "", "python/penstock/data/attic: is on the map and not on disk"),
        (
            "    plan/  what is read; attic/ things",
            "",
            "python/penstock/data/plan/attic: is on the map and not on disk",
        ),
        (
            "    plan/  what is read\n```\n\n`data/plan/turned`: turns\n\n```",
            "",
            "data/plan/turned: leads nowhere",
        ),
    ],
)
def test_a_planted_difference_is_named(tmp_path: Path, line: str, file: str, complaint: str) -> None:
    tree = [
        "python/penstock/__init__.py",
        "python/penstock/data/__init__.py",
        "python/penstock/data/plan/plan.py",
    ]
    for name in [*tree, *([file] if file else [])]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"""A room."""\n')
    rooms = "python/penstock/\n  data/  batches\n    plan/  what is read\n"
    (tmp_path / PAGE).write_text(
        f"## Rooms\n\n```\n{rooms}{line or '    plan/'}\n```\n\n`data/plan/plan`: plans.\n"
    )

    assert complaints(tmp_path) == [complaint]
