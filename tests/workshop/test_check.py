"""`make check` runs what is quick; its lists name every folder of tests once, and no file that is not there."""

import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def check(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the script defines."""
    monkeypatch.syspath_prepend(str(root / "workshop"))
    return runpy.run_path(str(root / "workshop/check.py"))


def test_every_folder_of_tests_is_on_one_side(root: Path, check: dict[str, Any]) -> None:
    """A new folder is decided about when it is made, not when `make check` has become slow."""
    folders = sorted(path.parent.name for path in (root / "tests").glob("*/__init__.py"))
    assert sorted({*check["FAST_FOLDERS"], *check["SLOW_FOLDERS"]}) == folders
    assert not set(check["FAST_FOLDERS"]) & set(check["SLOW_FOLDERS"])


def test_exceptions_are_files_of_the_other_side(root: Path, check: dict[str, Any]) -> None:
    for name in (*check["SLOW"], *check["FAST"]):
        assert (root / "tests" / name).is_file(), name
    assert {name.split("/")[0] for name in check["SLOW"]} <= set(check["FAST_FOLDERS"])
    assert not {name.split("/")[0] for name in check["FAST"]} & set(check["FAST_FOLDERS"])


def test_what_is_chosen_is_neither_slow_nor_chosen_twice(check: dict[str, Any]) -> None:
    names = check["chosen"]()
    assert len(set(names)) == len(names) > 10
    assert not {f"tests/{name}" for name in check["SLOW"]} & set(names)
    assert {f"tests/{name}" for name in check["FAST"]} <= set(names)


def test_frameworks_are_not_loaded_by_what_is_chosen(root: Path, check: dict[str, Any]) -> None:
    """Goal: an import of seconds does not creep in. Method: no chosen file imports one at its top."""
    frameworks = ("torch", "jax", "ray", "tensorflow", "transformers", "trl", "playwright")
    words = tuple(f"{verb} {name}" for verb in ("import", "from") for name in frameworks)
    loaded = {
        (name, line)
        for name in check["chosen"]()
        for line in (root / name).read_text().splitlines()
        if line.startswith(words)
    }
    assert loaded == set()
