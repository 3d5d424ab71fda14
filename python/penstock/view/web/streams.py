"""Recipes and runs below the folders of a server, found by looking at a limited number of files."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.view.web.cells import safe
from penstock.view.web.site import Site

_FILES_MAX = 5_000
_DEPTH_MAX = 4
_LISTED_MAX = 200
_RECIPE_BYTES_MAX = 1 << 20
_QUIET = {"node_modules", "target", "__pycache__", "objects", "derived"}


def find_streams(site: Site) -> dict[str, Any]:
    """Names of recipes and runs, as addresses have them: relative to their root."""
    recipes: list[str] = []
    runs: list[str] = []
    looked_at = left_out = 0
    for root in site.roots:
        for folder, names in _folders(root):
            looked_at += len(names)
            if looked_at > _FILES_MAX:
                left_out += len(names)
                continue
            relative = folder.relative_to(root)
            if "run.json" in names:
                runs.append(str(relative))
                continue
            found = (name for name in names if name.endswith(".toml") and _is_recipe(folder / name))
            recipes += [str(relative / name) for name in found]
    left_out += max(0, len(recipes) - _LISTED_MAX) + max(0, len(runs) - _LISTED_MAX)
    return {
        "recipes": [safe(name) for name in sorted(recipes)[:_LISTED_MAX]],
        "runs": [safe(name) for name in sorted(runs)[:_LISTED_MAX]],
        "roots": [safe(str(root)) for root in site.roots],
        "left_out": left_out,
    }


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders and their files, not too deep, without following links."""
    for place, folders, names in os.walk(root):
        depth = len(Path(place).relative_to(root).parts)
        folders[:] = [
            name for name in folders if not name.startswith(".") and name not in _QUIET and depth < _DEPTH_MAX
        ]
        yield Path(place), names


def _is_recipe(path: Path) -> bool:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _RECIPE_BYTES_MAX:
            return False
        return b"[[sources]]" in path.read_bytes()
    except OSError:
        return False
