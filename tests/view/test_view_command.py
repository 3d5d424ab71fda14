"""`penstock view`: the same address as plain lines, as JSON and as a page, and two addresses as a difference."""

import json
import re
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.view.library import Library


def look(library: Library, *words: str) -> int:
    return main(["view", *words, "--registry", str(library.folder / "registry")])


def test_a_batch_as_lines_and_as_json(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = library.recipe("texts@1")
    assert look(library, f"{recipe}#step=1", "--rows", "0:2", "--ids") == 0
    shown = capsys.readouterr().out
    assert "step 1, lane 0/1: 4 rows of 32 tokens" in shown
    assert "shown: rows 0:2 of 4" in shown
    assert "texts@1 row" in shown
    assert not set(shown) & set("\x1b\x07\u202e\u200b\ufffd")
    assert look(library, f"{recipe}#step=1", "--json", "--tokens", "0:8") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["step"], len(document["rows_shown"]), document["shown"]["cuts"]) == (
        1,
        4,
        ["tokens 0:8 of 32"],
    )
    assert document["command"] == f"penstock view {recipe}#step=1"
    row = document["rows_shown"][0]
    assert len(row["texts"]) == len(row["tokens"]) == len(row["loss_mask"]) == 8
    # An address with a place shows that place.
    assert look(library, f"{recipe}#step=1,row=2,token=4", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["shown"]["rows"], document["shown"]["tokens"]) == ([2, 3], [4, 32])


def test_versions_rows_and_filters(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    assert look(library, "texts@1", "--rows", "3:5") == 0
    shown = capsys.readouterr().out
    assert "shown: rows 3:5 of 56" in shown
    assert "␛[31malarm" in shown
    assert "\x1b" not in shown
    assert look(library, "texts@1/row/4", "--json") == 0
    assert json.loads(capsys.readouterr().out)["row"] == 4
    assert look(library, "texts@1", "--filter", "id % 7 == 2", "--rows", "0:3") == 0
    shown = capsys.readouterr().out
    assert [int(n) for n in re.findall(r"^row (\d+)", shown, re.MULTILINE)] == [2, 9, 16]
    assert "go on with --rows" in shown
    assert look(library, "texts@1", "--filter", "id == 5", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert ([row["row"] for row in document["rows"]], document["looked"]) == ([5], 56)


def test_two_addresses_are_compared_and_the_exit_code_says_it(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = library.recipe("texts@1")
    assert look(library, f"{recipe}#step=1", f"{recipe}#step=1") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "equal"
    assert look(library, f"{recipe}#step=1", f"{recipe}#step=2") == 1
    assert "first difference: row 0, token" in capsys.readouterr().out
    assert look(library, "texts@1", "talks@1", "--json") == 1
    assert json.loads(capsys.readouterr().out)["kind"] == "versions"
    assert look(library, recipe, "texts@1") == 2


def test_lanes_and_bad_input(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = library.recipe("texts@1")
    assert look(library, f"{recipe}#step=1", "--lanes", "2") == 0
    assert "lane 1/2: 2 rows" in capsys.readouterr().out
    for words, message in (
        (["nonsense#step=1"], "is not an address"),
        ([recipe, "--rows", "3"], ""),
        ([recipe, "--rows", "4"], "there is no row 4: rows go from 0 to 3"),
        ([recipe, "--rows", "x"], "not a range of rows"),
        ([recipe, "--redact"], "--redact goes with --export"),
        (["run:nowhere"], "no run in nowhere"),
        (["texts@1/row/99999"], "no row 99999"),
        ([str(library.folder / "absent.toml")], "cannot read"),
    ):
        assert look(library, *words) == (2 if message else 0)
        assert message in capsys.readouterr().err


def test_the_sample_of_a_token_in_four_stages(
    library: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"{library.chat('talks@1')}#step=0,row=1,token=2"
    assert look(library, address, "--stages") == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if not line.startswith(" ")][1:] == [
        "as registered",
        *re.findall(r"as text, \d+ characters", shown),
        *re.findall(r"as tokens, \d+", shown),
        "in the input of this batch",
    ]
    assert re.search(r"assistant learned: answer \d+ in words", shown)
    assert look(library, address, "--stages", "--json") == 0
    assert json.loads(capsys.readouterr().out)["input"][0]["row"] == 1
    page = tmp_path / "stages.html"
    assert look(library, address, "--stages", "--export", str(page), "--redact") == 0
    assert "answer" not in page.read_text()


def test_an_exported_page_is_written_where_it_should(library: Library, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert look(library, f"{library.recipe('texts@1')}#step=1", "--export", str(page)) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert look(library, "texts@1", "--export", str(tmp_path / "no" / "page.html")) == 2
