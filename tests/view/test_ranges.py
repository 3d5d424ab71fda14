"""One vocabulary for ranges in every command, and an error for every place that does not exist."""

import json
import re
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.errors import AddressInvalid, RowOutOfRange, TokenOutOfRange, UsageError
from penstock.view.bounds import parse_bounds
from tests.view.library import Library

ROW = re.compile(r"^row (\d+)", re.MULTILINE)


def run(library: Library, *words: str) -> int:
    return main([*words, "--registry", str(library.folder / "registry")])


def rows_in(text: str) -> list[int]:
    return [int(number) for number in ROW.findall(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0:4", (0, 4)),
        ("3", (3, 4)),
        ("-1", (7, 8)),
        ("-3:", (5, 8)),
        ("5:", (5, 8)),
        (":2", (0, 2)),
        (":", (0, 8)),
        ("6:99", (6, 8)),
    ],
)
def test_a_range_is_what_python_would_make_of_it(text: str, found: tuple[int, int]) -> None:
    assert parse_bounds(text).within(8) == found
    assert list(range(8))[slice(*found)] == list(range(*found))


@pytest.mark.parametrize("text", ["", "x", "1:2:3", "1-2", "1.5", "٣", "0x1", "9" * 30])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(AddressInvalid, match="not a range of rows"):
        parse_bounds(text)


def test_a_range_that_holds_nothing_is_an_error() -> None:
    for text in ("8", "99:", "-9", "8:20"):
        with pytest.raises(RowOutOfRange):
            parse_bounds(text).within(8)
    for text in ("3:3", "5:2"):
        with pytest.raises(UsageError, match="empty range"):
            parse_bounds(text).within(8)
    with pytest.raises(TokenOutOfRange):
        parse_bounds("40", of="tokens").within(32)
    for text in ("7:", "-2:", ":-1"):
        with pytest.raises(UsageError, match="no end"):
            parse_bounds(text, of="steps").endless()


@pytest.mark.parametrize("more", [[], ["--json"], ["--export", "page.html"]])
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("#step=0,row=99", "there is no row 99: rows go from 0 to 3"),
        ("#step=0,row=4", "there is no row 4"),
        ("#step=0,row=0,token=32", "there is no token 32 in a row of 32"),
        ("#step=0,lane=1/2,row=2", "there is no row 2: rows go from 0 to 1"),
    ],
)
def test_a_place_that_a_batch_does_not_have_is_an_error(
    library: Library,
    place: str,
    message: str,
    more: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: nobody takes an empty page for an empty row."""
    monkeypatch.chdir(tmp_path)
    assert run(library, "view", library.recipe("texts@1") + place, *more) == 2

    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_every_other_place_that_does_not_exist_is_an_error_too(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = library.recipe("texts@1")
    once = Path(recipe).with_name("once.toml")
    once.write_text(Path(recipe).read_text().replace('name = "texts@1"', 'name = "texts@1"\nepochs = 1'))
    for words, message in (
        (["view", f"{recipe}#step=0", "--rows", "7:9"], "there is no row 7"),
        (["view", f"{recipe}#step=0", "--tokens", "99:"], "there is no token 99"),
        (["view", f"{recipe}#step=0,row=9,token=1", "--stages"], "there is no row 9"),
        (["view", f"{once}#step=100000"], "the stream ends before step 100000"),
        (["view", "texts@1", "--rows", "99"], "there is no row 99"),
        (["view", "texts@1/row/99"], "there is no row 99"),
        (["data", "rows", "texts@1", "--rows", "99:"], "there is no row 99"),
        (["data", "peek", recipe, "--rows", "4"], "there is no row 4"),
        (["data", "peek", recipe, "--steps", "3:"], "has no end"),
        (["data", "lint", recipe, "--steps", "5:5"], "empty range of steps"),
        (["view", "texts@1", "--steps", "1"], "only recipes and runs have steps"),
    ):
        assert run(library, *words) == 2, words
        assert message in capsys.readouterr().err, words


def test_rows_and_steps_mean_the_same_in_every_command(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = library.recipe("texts@1")
    for command in (["data", "rows", "texts@1"], ["view", "texts@1"]):
        assert run(library, *command, "--rows", "54:") == 0
        assert rows_in(capsys.readouterr().out) == [54, 55]
        assert run(library, *command, "--rows=-2:") == 0
        assert rows_in(capsys.readouterr().out) == [54, 55]
    for command in (["data", "peek", recipe], ["view", recipe]):
        assert run(library, *command, "--steps", "3:5", "--rows", "1:3", "--json") == 0
        batches = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [batch["step"] for batch in batches] == [3, 4]
        assert run(library, *command, "--steps", "3:5", "--rows", "1:3") == 0
        shown = capsys.readouterr().out
        assert (len(re.findall("^step ", shown, re.MULTILINE)), rows_in(shown)) == (2, [1, 2, 1, 2])
    assert run(library, "data", "lint", recipe, "--steps", "3", "--json") in (0, 1)
    assert json.loads(capsys.readouterr().out)["batches"] == 1


def test_older_options_still_work(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = library.recipe("texts@1")
    outputs = {}
    for words in (
        ["data", "rows", "texts@1", "--start", "-3", "--count", "2"],
        ["data", "rows", "texts@1", "--rows=-3:-1"],
        ["data", "peek", recipe, "--step", "3", "--count", "2", "--json"],
        ["data", "peek", recipe, "--steps", "3:5", "--json"],
    ):
        assert run(library, *words) == 0
        outputs[" ".join(words[1:])] = capsys.readouterr().out
    shown = list(outputs.values())
    assert shown[0] == shown[1]
    assert shown[2] == shown[3]
    assert run(library, "data", "rows", "texts@1", "--rows", "1", "--start", "3") == 2
    assert run(library, "data", "peek", recipe, "--steps", "1", "--step", "3") == 2


def test_part_of_a_batch_says_what_it_is(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = library.recipe("texts@1")
    assert run(library, "data", "peek", recipe, "--rows", "1:3", "--json") == 0
    part = json.loads(capsys.readouterr().out)
    assert run(library, "data", "peek", recipe, "--json") == 0
    whole = json.loads(capsys.readouterr().out)

    assert part["rows"] == [1, 3]
    assert (part["tokens"], part["origins"]) == (whole["tokens"][1:3], whole["origins"][1:3])
    assert (part["shape"], part["digest"]) == (whole["shape"], whole["digest"])


def test_a_filter_looks_at_everything_when_it_is_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Method: more rows than one look has, of which one at the end passes."""
    library = Library(tmp_path)
    library.add("many", [{"id": number} for number in range(25_000)])

    assert run(library, "view", "many@1", "--filter", "id == 24990") == 0
    shown = capsys.readouterr().out
    assert (rows_in(shown), "10,000 that were looked at" in shown, "--all" in shown) == ([], True, True)

    assert run(library, "view", "many@1", "--filter", "id % 5000 == 4990", "--all") == 0
    shown = capsys.readouterr().out
    assert rows_in(shown) == [4990, 9990, 14990, 19990, 24990]
    assert "5 rows of the 25,000 that were looked at" in shown

    assert (
        run(library, "view", "many@1", "--filter", "id >= 24000", "--all", "--rows", "9000:24010", "--json")
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert [row["row"] for row in document["rows"]] == list(range(24_000, 24_010))
    assert (document["looked"], document["next"]) == (15_010, None)
    assert run(library, "view", "many@1", "--all") == 2
