"""Recipes and runs below the folders of a server.

A recipe is known by reading it: a ``.toml`` or ``.json`` file whose table has sources with names, and a batch. Nothing in it is opened
or imported. Folders are looked at level by level, so that what lies near comes first; links are followed as far as they stay
below the server's folders. All of it is bounded, and whatever the bounds or the rules leave out is counted and said.
"""

import os
import time
import tomllib
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from penstock.view.address import RECIPES
from penstock.view.web.content.cells import safe
from penstock.view.web.site import Site
from penstock.view.wire.dataset_answers import StreamList

#: Names in folders, bytes of files, seconds and levels that are spent on one list, and how many of each it has.
ENTRIES_MAX = 200_000
BYTES_MAX = 64 << 20
SECONDS_MAX = 3.0
DEPTH_MAX = 8
LISTED_MAX = 500
_RECIPE_BYTES_MAX = 1 << 20
#: Folders that hold what programs made; those of a registry among them.
_QUIET = {"node_modules", "target", "__pycache__", "objects", "derived"}
_LEADS_OUT = "links that lead out of the folders of this server (--root FOLDER opens more)"


@dataclass
class _Search:
    """What was found, and what was left out and why."""

    recipes: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    left_out: "Counter[str]" = field(default_factory=Counter)
    #: What was spent.
    entries: int = 0
    read_bytes: int = 0
    deadline: float = field(default_factory=lambda: time.monotonic() + SECONDS_MAX)

    def spent(self) -> bool:
        """Whether no more may be looked at."""
        return self.entries > ENTRIES_MAX or self.read_bytes > BYTES_MAX or time.monotonic() > self.deadline


def find_streams(site: Site) -> StreamList:
    """Names of recipes and runs, as addresses have them: relative to their root."""
    search = _Search()
    for number, root in enumerate(site.roots):
        # A name that an earlier folder has already is told apart by its whole path.
        earlier = site.roots[:number]
        for folder, files in _folders(root, site, search):
            if "run.json" in files:
                search.runs.append(_name(folder, root, earlier))
                continue
            for name in sorted(files):
                if name.lower().endswith(RECIPES) and _is_recipe(folder / name, search):
                    search.recipes.append(_name(folder / name, root, earlier))
    for what, names in (("recipes", search.recipes), ("runs", search.runs)):
        search.left_out[f"{what} more"] += max(0, len(names) - LISTED_MAX)
    return {
        "recipes": [safe(name) for name in sorted(set(search.recipes))[:LISTED_MAX]],
        "runs": [safe(name) for name in sorted(set(search.runs))[:LISTED_MAX]],
        "roots": [safe(str(root)) for root in site.roots],
        "left_out": sum(search.left_out.values()),
        "reasons": {what: count for what, count in search.left_out.items() if count},
    }


def find_runs(site: Site, folder: Path) -> tuple[list[Path], int]:
    """Directories of runs below a folder, by name, and how many folders were not looked into; bounded as the list of all is."""
    search = _Search()
    runs = [inner for inner, files in _folders(folder, site, search) if "run.json" in files]
    return sorted(runs), sum(search.left_out.values())


def _folders(root: Path, site: Site, search: _Search) -> Iterator[tuple[Path, list[str]]]:
    """Folders and the names of their files, level by level, each once however many links lead to it."""
    waiting: deque[tuple[Path, int]] = deque([(root, 0)])
    seen: set[tuple[int, int]] = set()
    while waiting:
        folder, depth = waiting.popleft()
        if search.spent():
            search.left_out["folders not looked into, since the list is limited"] += 1
            continue
        try:
            about = folder.stat()
            if (about.st_dev, about.st_ino) in seen:
                continue
            seen.add((about.st_dev, about.st_ino))
            folders, files = _entries(folder, site, search)
        except OSError:
            search.left_out["folders that cannot be read"] += 1
            continue
        yield folder, files
        if "run.json" in files or {"objects", "datasets"} <= set(folders):
            # What is inside a run or a registry belongs to it.
            continue
        inner = [name for name in sorted(folders) if not name.startswith(".") and name not in _QUIET]
        if depth == DEPTH_MAX:
            search.left_out[f"folders more than {DEPTH_MAX} levels down"] += len(inner)
            continue
        waiting.extend((folder / name, depth + 1) for name in inner)


def _entries(folder: Path, site: Site, search: _Search) -> tuple[list[str], list[str]]:
    """Names of folders and of files that may matter; links are followed while they stay below the server's folders."""
    folders: list[str] = []
    files: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            search.entries += 1
            if search.spent():
                search.left_out["folders looked into only in part, since the list is limited"] += 1
                break
            # Most names are of data: what cannot matter costs no look at the file.
            matters = entry.name == "run.json" or entry.name.lower().endswith(RECIPES)
            try:
                if entry.is_symlink() and _leads_out(entry, site):
                    search.left_out[_LEADS_OUT] += matters or entry.is_dir()
                elif entry.is_dir():
                    folders.append(entry.name)
                elif matters:
                    files.append(entry.name)
            except OSError:
                # A link that leads to itself.
                search.left_out["links that lead nowhere"] += 1
    return folders, files


def _leads_out(entry: "os.DirEntry[str]", site: Site) -> bool:
    target = Path(os.path.realpath(entry.path))
    return not any(target.is_relative_to(root) for root in site.roots)


def _name(path: Path, root: Path, earlier: tuple[Path, ...]) -> str:
    relative = path.relative_to(root)
    return str(path if any((other / relative).exists() for other in earlier) else relative)


def _is_recipe(path: Path, search: _Search) -> bool:
    """Whether a file reads as a recipe; nothing that it names is opened."""
    if search.spent():
        search.left_out["files not read, since the list is limited"] += 1
        return False
    try:
        if not path.is_file() or path.stat().st_size > _RECIPE_BYTES_MAX:
            return False
        data = path.read_bytes()
    except OSError:
        search.left_out["files that cannot be read"] += 1
        return False
    search.read_bytes += len(data)
    if b"sources" not in data or b"batch" not in data:
        return False
    try:
        text = data.decode("utf-8-sig")
        document = msgspec.json.decode(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        search.left_out["files that look like recipes and are no TOML or JSON"] += 1
        return False
    return _has_sources(document)


def _has_sources(document: Any) -> bool:
    if not isinstance(document, dict) or "batch" not in document:
        return False
    sources = document.get("sources")
    named = isinstance(sources, list) and all(
        isinstance(source, dict) and isinstance(source.get("name"), str) for source in sources
    )
    return named and bool(sources)
