"""The parts of the terminal view that need no screen: walking, flowing, searching, going, drawing."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from penstock.errors import AddressInvalid
from penstock.view.address import parse
from penstock.view.model import BatchView
from penstock.view.model.fields import field_of
from penstock.view.opener import OpenedStream
from penstock.view.terminal.destination import target
from penstock.view.terminal.text import block_walk as walking
from penstock.view.terminal.text.field_lines import field_lines, sparkline
from penstock.view.terminal.text.flow import NOTHING, flow, line_of, nearest
from penstock.view.terminal.text.prompt import Question
from penstock.view.terminal.text.search import find
from penstock.view.terminal.text.styled_line import StyledText, merged, shortened, strip_of, wrapped
from tests.view.library import HOSTILE, Library

heights = st.lists(st.integers(1, 5), min_size=1, max_size=12)


@given(heights, st.integers(-40, 40), st.data())
def test_walking_over_blocks_is_walking_over_all_of_their_lines(
    tall: list[int], lines: int, data: st.DataObject
) -> None:
    places = [(block, line) for block, count in enumerate(tall) for line in range(count)]
    at = data.draw(st.integers(0, len(places) - 1))
    moved = walking.moved(places[at], lines, blocks=len(tall), height=tall.__getitem__)
    wanted = max(0, min(at + lines, len(places) - 1))
    if 0 <= at + lines < len(places):
        assert moved == places[wanted]
    else:
        assert moved[0] == places[wanted][0]
    other = data.draw(st.integers(0, len(places) - 1))
    between = walking.between(places[at], places[other], limit=1000, height=tall.__getitem__)
    assert between == (other - at if other >= at else -1)
    screen = data.draw(st.integers(1, 10))
    low = walking.last_top(blocks=len(tall), screen=screen, height=tall.__getitem__)
    assert low == places[max(0, len(places) - screen)]


def test_walking_asks_only_for_the_blocks_it_crosses() -> None:
    """Goal: row 10^9 costs what row 0 costs. Method: count the blocks whose height was asked for."""
    asked: list[int] = []

    def height(block: int) -> int:
        asked.append(block)
        return 1

    there = walking.moved((10**9, 0), 20, blocks=2 * 10**9, height=height)
    assert there == (10**9 + 20, 0)
    assert len(asked) < 60
    first, length = walking.thumb((10**9, 0), blocks=2 * 10**9, screen=20, height=height)
    assert (first, length) == (10, 1)
    assert len(asked) < 200


@settings(deadline=None)
@given(st.lists(st.text("ab 日é\n\x1b", max_size=9), max_size=40), st.integers(8, 30), st.booleans())
def test_flowing_leaves_nothing_out_and_every_line_fits(texts: list[str], width: int, marked: bool) -> None:
    marks = dict.fromkeys(range(0, len(texts), 3), "|7|") if marked else {}
    lines = flow(texts, width, first=5, marks={5 + n: mark for n, mark in marks.items()})
    texts_by_token: dict[int, str] = {}
    for line in lines:
        assert sum(cell.width for cell in line) <= width
        for placed in line:
            assert placed.text.isprintable()
            assert placed.width == cell_len(placed.text)
            if not placed.mark:
                texts_by_token[placed.token] = texts_by_token.get(placed.token, "") + placed.text
    shown = [text.replace("\n", "⏎").replace("\x1b", "␛") or NOTHING for text in texts]
    assert [texts_by_token[5 + n] for n in range(len(texts))] == shown
    for n in range(len(texts)):
        assert any(cell.token == 5 + n for cell in lines[line_of(lines, 5 + n)])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text("ab日", max_size=40), st.text("ab日", max_size=40)), max_size=20),
    st.integers(8, 20),
)
def test_two_sides_have_the_same_tokens_on_the_same_lines(pairs: list[tuple[str, str]], width: int) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    left, right = flow(one, width, beside=other), flow(other, width, beside=one)
    assert len(left) == len(right)
    assert [line_of(left, n) for n in range(len(pairs))] == [line_of(right, n) for n in range(len(pairs))]


def test_a_line_breaks_where_the_text_does_and_finds_the_nearest_token() -> None:
    lines = flow(["one\n", "two", " three"], 20, breaks=True)
    assert [[cell.text for cell in line] for line in lines] == [["one⏎"], ["two", " three"]]
    assert [nearest(lines[1], x) for x in (0, 2, 3, 19)] == [1, 1, 2, 2]
    assert nearest([], 3) is None


def test_a_line_is_typed_edited_and_sent() -> None:
    answers: list[str] = []
    question = Question("go: ", answers.append, "step")
    for key in ("=", "7", "x", "backspace", "home", "right", "delete", "left", "end", "8"):
        question.key(key, key if len(key) == 1 else None)
    question.insert("\x1b9\nsecond line")
    assert "".join(piece.text for piece in question.line(40)) == "go: sep=789 "
    assert cell_len("".join(piece.text for piece in question.line(9))) <= 9
    question.key("enter", "\r")
    assert (answers, question.ended) == (["sep=789"], True)
    left = Question("go: ", answers.append, "x")
    left.key("escape", None)
    assert (len(answers), left.ended) == (1, True)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_reaches_the_terminal_with_a_control_character(text: str) -> None:
    strip = strip_of([StyledText(text), StyledText(text, Style(bold=True))], 60)
    assert strip.text.isprintable()
    assert strip.cell_length == 60
    assert "".join(wrapped(text, 7)).isprintable()
    assert cell_len(shortened(text, 10)) <= 10


def test_neighbours_of_the_same_style_travel_as_one() -> None:
    bold = Style(bold=True)
    assert merged([StyledText("a", bold), StyledText("b", bold), StyledText("c")]) == [
        StyledText("ab", bold),
        StyledText("c"),
    ]


@pytest.mark.parametrize(
    ("here", "text", "there"),
    [
        ("web@3/row/5", "17", "web@3/row/17"),
        ("web@3", "row=17", "web@3/row/17"),
        ("r.toml#step=7,row=2,token=9", "41207", "r.toml#step=41207"),
        ("r.toml#step=7,lane=1/4", "row=5,token=120", "r.toml#step=7,lane=1/4,row=5,token=120"),
        ("r.toml#step=7,row=2,token=9", "token=3", "r.toml#step=7,row=2,token=3"),
        ("r.toml#step=7,row=2", "lane=3/8", "r.toml#step=7,lane=3/8"),
        ("r.toml#step=7", "web@3/row/1", "web@3/row/1"),
        ("web@3", "http://127.0.0.1:8090/?token=x#/a/r.toml%23step%3D4", "r.toml#step=4"),
    ],
)
def test_a_short_text_leads_somewhere_from_where_one_is(here: str, text: str, there: str) -> None:
    assert str(target(parse(here), text)) == there


@pytest.mark.parametrize(("here", "text"), [("web@3", "step=4"), ("r.toml", "step=x"), ("r.toml", "a b")])
def test_a_text_that_leads_nowhere_says_why(here: str, text: str) -> None:
    with pytest.raises(AddressInvalid):
        target(parse(here), text)


def batch_of(library: Library, address: str) -> BatchView:
    """The batch at an address."""
    opened = library.opener.open(parse(address))
    assert isinstance(opened, OpenedStream)
    view = opened.batch()
    assert isinstance(view, BatchView)
    return view


@pytest.mark.parametrize("text", ["snow ☃", "snow ☃ and 😀", "SCRIPT", "script", "\x1b[31m", "id=70"])
def test_search_finds_every_place_once_and_in_order(library: Library, text: str) -> None:
    """Goal: exact bytes over token boundaries. Method: go round a batch and compare with bytes of rows put together by hand."""
    view = batch_of(library, f"{library.recipe('texts@1', length=128)}#step=0")
    vocabulary = view.sources[0].vocabulary
    assert vocabulary is not None
    wanted = []
    for row in range(view.rows):
        ids = np.asarray(view.arrays["tokens"])[row].tolist()
        if text == "id=70":
            wanted += [(row, at) for at, number in enumerate(ids) if number == 70]
            continue
        pieces = [vocabulary.bytes_of(number) or b"" for number in ids]
        data = b"".join(pieces) if text != text.lower() else b"".join(pieces).lower()
        starts = np.cumsum([0, *map(len, pieces)])
        wanted += [
            (row, int(np.searchsorted(starts, at, side="right")) - 1)
            for at in range(len(data))
            if data.startswith(text.encode(), at)
        ]
    places, at = [], (view.rows - 1, view.length)
    for _ in range(len(wanted)):
        match = find(view, text, at)
        assert match is not None
        at = (match.row, match.tokens[0])
        assert set(range(*match.tokens)) <= match.all_of_row
        places.append(at)
    assert places == wanted
    if wanted:
        back = find(view, text, wanted[0], backward=True)
        assert back is not None
        assert (back.row, back.tokens[0], back.around) == (*wanted[-1], True)
    else:
        assert find(view, text, (0, 0)) is None


def test_fields_of_every_kind_have_their_lines() -> None:
    fields = [
        field_of("text", "one\ntwo \x1b[31m"),
        field_of("number", 4.5),
        field_of("picture", b"\x89PNG\r\n\x1a\n" + bytes(40)),
        field_of("raw", b"\x00\x01"),
        field_of("walk", np.arange(8, dtype=np.float32)),
        field_of("long", "x" * 3000),
        field_of("none", None),
    ]
    lines = ["".join(piece.text for piece in line) for line in field_lines(fields)]
    assert "text  text, 13 characters" in lines
    assert "  two ␛[31m" in lines
    assert "  4.5" in lines
    assert "picture  image/png, 48 bytes" in lines
    assert "  00 01" in lines
    assert "  ▁▂▃▄▅▆▇█" in lines
    assert "  … left out: 1,000 characters of 3,000 (m shows more)" in lines
    assert sparkline([1, "nan", 2]) == "▁ █"


def test_the_first_screen_waits_for_no_array_library_and_no_data() -> None:
    """Goal: a first screen in under a second. Method: what the command and the application import before anything is opened."""
    program = (
        "import sys, penstock.cli.view, penstock.view.terminal.app; from penstock.view.address import parse; "
        "parse('recipe.toml#step=7,row=2'); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"numpy", "pyarrow", "tokenizers", "penstock.data", "penstock.registry"} & set(
        done.stdout.split()
    )
