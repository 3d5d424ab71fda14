"""What the start page lists: recipes however they are written and wherever they lie, and what it left out."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli.scenes import gang, training
from penstock.view.web.content import streams
from penstock.view.web.site import Site

TABLES = 'batch = 4\n\n[[sources]]\nname = "web@1"\n'
INLINE = 'sources = [{name = "web@1"}]\nbatch = 4\n'
JSON = json.dumps({"batch": 4, "sources": [{"name": "web@1"}]})


def look(*roots: Path) -> dict[str, Any]:
    registry = ps.Registry(roots[0] / "registry")
    return streams.find_streams(
        Site(registry=registry, events_directory=roots[0] / "events", roots=tuple(roots))
    )


def write(path: Path, text: str = TABLES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_is_listed_however_it_is_written(tmp_path: Path) -> None:
    write(tmp_path / "tables.toml")
    write(tmp_path / "inline.toml", INLINE)
    write(tmp_path / "nested.toml", 'batch = [[0, 4]]\n[[ sources ]]\nname = "web@1"\n')
    write(tmp_path / "dotted.json", JSON)
    write(tmp_path / "CAPITALS.TOML", INLINE)
    write(tmp_path / "CAPITALS.JSON", JSON)
    write(tmp_path / "日本.toml", f"# [[sources]]\n{INLINE}")
    write(tmp_path / "pyproject.toml", '[tool.x]\n# [[sources]] batch\nsources = "no"\nbatch = 1\n')
    write(tmp_path / "no-batch.toml", '[[sources]]\nname = "web@1"\n')
    write(tmp_path / "data.json", json.dumps([{"sources": 1, "batch": 2}]))

    answer = look(tmp_path)

    capitals = ["CAPITALS.JSON", "CAPITALS.TOML"]
    others = ["dotted.json", "inline.toml", "nested.toml", "tables.toml", "日本.toml"]
    assert answer["recipes"] == capitals + others
    assert (answer["left_out"], answer["reasons"]) == (0, {})


def test_the_recipes_of_the_demo_are_recipes(tmp_path: Path) -> None:
    write(tmp_path / "gang.toml", gang._RECIPE)
    write(tmp_path / "training.toml", training._RECIPE.format(tokenizer="tokenizer.json"))

    assert look(tmp_path)["recipes"] == ["gang.toml", "training.toml"]


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    write(root / "shared/deep/one.toml")
    write(outside / "two.toml")
    (root / "link.toml").symlink_to(root / "shared/deep/one.toml")
    (root / "folder").symlink_to(root / "shared", target_is_directory=True)
    (root / "shared/loop").symlink_to(root, target_is_directory=True)
    (root / "away").symlink_to(outside, target_is_directory=True)
    (root / "away.toml").symlink_to(outside / "two.toml")
    (root / "gone.toml").symlink_to(root / "nothing.toml")

    answer = look(root)

    assert "link.toml" in answer["recipes"]
    assert {"folder/deep/one.toml", "shared/deep/one.toml"} & set(answer["recipes"])
    assert not any("two" in name or "away" in name for name in answer["recipes"])
    # What may not be opened is not named, but nobody is told that there is nothing.
    assert answer["left_out"] == 2
    assert all("--root" in reason for reason in answer["reasons"])
    both = look(root, outside)
    assert both["left_out"] == 0
    assert {"away.toml", "away/two.toml", "two.toml"} <= set(both["recipes"])


def test_odd_files_neither_hang_nor_hide_the_others(tmp_path: Path) -> None:
    """Method: a FIFO and a folder of a recipe's name, links to devices and to themselves, depth, bytes that are no UTF-8."""
    os.mkfifo(tmp_path / "fifo.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    (tmp_path / "here").symlink_to(".")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    write(tmp_path / "deep.toml", f"batch = 1\nsources = {'[' * 5000}")
    write(tmp_path / "deep.json", '{"batch": 1, "sources": ' + "[" * 100_000)
    write(tmp_path / "crlf.toml", "\ufeff" + INLINE.replace("\n", "\r\n"))
    assert ps.Recipe.load(tmp_path / "crlf.toml").sources[0].name == "web@1"
    write(tmp_path / os.fsdecode(b"bad\xff.toml"))
    write(tmp_path / "new\nline.toml")

    answer = look(tmp_path)

    assert answer["recipes"] == sorted(["bad\\udcff.toml", "crlf.toml", "new\nline.toml"])
    assert sum(answer["reasons"].values()) == answer["left_out"] == 5


def test_a_recipe_among_many_files_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(6_000):
        (folder / f"{number:05}.txt").touch()
    write(folder / "zz.toml", INLINE)
    write(tmp_path / "many/more/yy.json", JSON)

    answer = look(tmp_path)

    assert answer["recipes"] == ["many/more/yy.json", "many/zz.toml"]
    assert answer["left_out"] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("ENTRIES_MAX", 20), ("BYTES_MAX", 0), ("SECONDS_MAX", -1.0), ("DEPTH_MAX", 0), ("LISTED_MAX", 1)],
)
def test_a_bound_is_kept_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: float
) -> None:
    for number in range(40):
        write(tmp_path / f"folder-{number:02}/recipe.toml")
    monkeypatch.setattr(streams, name, value)

    answer = look(tmp_path)

    assert len(answer["recipes"]) < 40
    assert answer["left_out"] > 0
    assert answer["reasons"]


def test_files_of_runs_and_registries_are_no_recipes_and_broken_ones_are_said(tmp_path: Path) -> None:
    write(tmp_path / "runs/exp/run.json", "{}")
    write(tmp_path / "runs/exp/recipes/abc.json", JSON)
    write(tmp_path / "raw.jsonl", '{"a": 1}\n')
    ps.Registry(tmp_path / "registry").register("web", tmp_path / "raw.jsonl")
    write(tmp_path / "registry/plans/abc.json", JSON)
    write(tmp_path / "broken.toml", "batch = 4\n[[sources]\n")
    (tmp_path / "latin.toml").write_bytes("batch = 4 # ü sources".encode("latin-1"))

    answer = look(tmp_path)

    assert (answer["recipes"], answer["runs"]) == ([], ["runs/exp"])
    assert answer["reasons"] == {"files that look like recipes and are no TOML or JSON": 2}


def test_a_name_of_two_folders_opens_the_file_that_was_meant(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write(first / "recipe.toml")
    write(second / "recipe.toml", INLINE)
    write(second / "other.toml")

    assert look(first, second)["recipes"] == sorted(
        [str(second / "recipe.toml"), "other.toml", "recipe.toml"]
    )
