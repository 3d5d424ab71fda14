"""Characters that several tokens share: shown whole at the first token, with exact bytes on demand."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.main import main
from penstock.view.address import parse
from penstock.view.model import BatchView, TokenKind
from penstock.view.model.tokens.characters import CONTINUED, join
from penstock.view.model.tokens.glyphs import shown
from penstock.view.model.tokens.samples import Samples
from penstock.view.opener import OpenedStream
from tests.view.library import Library, metaspace, ranks

WORLD = [
    "日本語のテキスト",
    "मैं हिन्दी",
    "שלום עולם مرحبا",
    "ไทย 한국어 кириллица",
    "😀👨‍👩‍👧 ☃ é e\u0301",
]


@given(st.text(min_size=1), st.lists(st.integers(0, 200)))
def test_however_a_text_is_cut_its_characters_come_back(text: str, cuts: list[int]) -> None:
    """Goal: nothing is lost, doubled or moved. Method: cut the bytes of any text anywhere."""
    text = text.encode("utf-8", "ignore").decode()
    data = text.encode()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[a:b] for a, b in pairwise(edges)]

    displays = join(pieces)

    assert len(displays) == len(pieces)
    assert all(displays)
    written = "".join(display.removeprefix(CONTINUED) for display in displays)
    # A mark that begins a token leans on a circle, wherever it is cut.
    assert written.replace("◌", "") == shown(data)[0].replace("◌", "")


@given(st.lists(st.binary(min_size=1, max_size=4), min_size=1))
def test_bytes_that_are_no_character_stay_bytes(pieces: list[bytes]) -> None:
    displays = join(pieces)

    # Every byte that no character has is shown at the token that has it.
    for piece, display in zip(pieces, displays, strict=True):
        assert display
        assert "\ufffd" not in display
        assert len(re.findall("⟨[0-9A-F]{2}⟩", display)) <= len(piece)


def test_examples() -> None:
    assert join([b"\xe6\x97", b"\xa5"]) == ["日", CONTINUED]
    assert join([b"a\xe6", b"\x97", b"\xa5b"]) == ["a日", CONTINUED, f"{CONTINUED}b"]
    assert join([b"\xe6", b"a"]) == ["⟨E6⟩", "a"]
    assert join([b"\xf0\x9f", b"\x98", b"\x80\xe6"]) == ["😀", CONTINUED, f"{CONTINUED}⟨E6⟩"]
    assert join([b"\xe2\x80", b"\xae"]) == ["⟨U+202E⟩", CONTINUED]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Library:
    new_library = Library(tmp_path_factory.mktemp("world"))
    new_library.add_texts("world", WORLD * 4)
    return new_library


@pytest.mark.parametrize("style", ["byte level", "metaspace", "ranks"])
def test_text_of_every_script_is_readable_with_every_tokenizer(world: Library, style: str) -> None:
    tokenizers = {
        "byte level": lambda: world.tokenizer,
        "metaspace": lambda: metaspace(world.folder / "metaspace.json"),
        "ranks": lambda: ranks(world.folder / "ranks.tiktoken"),
    }
    recipe = world.recipe("world@1", tokenizer=tokenizers[style](), length=256)
    stream = world.opener.open(parse(recipe))
    assert isinstance(stream, OpenedStream)
    view = stream.batch()
    assert isinstance(view, BatchView)

    rows = view.window(joined=True).texts()
    text = "".join("".join(row) for row in rows).replace(CONTINUED, "").replace("◌", "")
    for words in ("日本語", "한국어", "кириллица", "😀", "☃", "שלום"):
        assert words in text, words
    exact = view.window()
    assert "⟨E6⟩" in "".join(exact.texts()[0])
    # The kinds still say which tokens are no whole characters, and the exact display is what it was.
    assert (exact.columns["kinds"] == view.window(joined=True).columns["kinds"]).all()
    assert (exact.columns["kinds"] == TokenKind.PARTIAL).any()


def test_a_window_shows_a_character_as_the_whole_row_does(world: Library) -> None:
    """Goal: where a page or a stretch begins changes nothing. Method: all windows of a few tokens against the row."""
    stream = world.opener.open(parse(world.recipe("world@1", length=64)))
    assert isinstance(stream, OpenedStream)
    view = stream.batch()
    assert isinstance(view, BatchView)

    for row in range(view.rows):
        whole = view.window((row, row + 1), joined=True).texts()[0]
        for first in range(view.length - 5):
            part = view.window((row, row + 1), (first, first + 5), joined=True).texts()[0]
            assert part == whole[first : first + 5]


def test_characters_are_not_joined_over_the_ends_of_documents(tmp_path: Path) -> None:
    """Method: documents are cut at 4 tokens in the middle of a character, so that its halves meet other documents."""
    library = Library(tmp_path)
    library.add_texts("cut", ["日本" for _ in range(12)])
    recipe = library.recipe("cut@1", more='[[stages]]\nkind = "truncate"\nlength = 4', length=32)
    stream = library.opener.open(parse(recipe))
    assert isinstance(stream, OpenedStream)
    view = stream.batch()
    assert isinstance(view, BatchView)

    assert view.window((0, 1), (0, 8), joined=True).texts()[0] == ["日", CONTINUED, CONTINUED, "⟨E6⟩"] * 2


def test_the_command_shows_characters_and_bytes_on_demand(
    world: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = world.recipe("world@1", length=256)
    registry = ["--registry", str(world.folder / "registry")]
    for address, more in ((f"{recipe}#step=0", []), (f"{recipe}#step=0,row=0,token=0", ["--stages"])):
        shown_lines = {}
        for mode in ([], ["--bytes"]):
            assert main(["view", address, *more, *mode, *registry]) == 0
            # Of the stages, only that of the tokens; the others are text anyway.
            tokens = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
            shown_lines[bool(mode)] = "".join(tokens)
        assert ("日│◂│◂" in shown_lines[False], "⟨E6⟩" in shown_lines[False]) == (True, False)
        assert ("日" in shown_lines[True], "⟨E6⟩" in shown_lines[True]) == (False, True)


def test_the_tokens_of_a_sample_have_both(world: Library) -> None:
    stream = world.opener.open(parse(world.recipe("world@1", length=256)))
    assert isinstance(stream, OpenedStream)
    view = stream.batch()
    assert isinstance(view, BatchView)

    tokens = Samples(stream.plan, stream.vocabularies).stages(view, 0, 0)["tokens"]

    assert tokens["texts"][:3] == ["⟨E6⟩", "⟨97⟩", "⟨A5⟩"]
    assert tokens["joined"][:3] == ["日", CONTINUED, CONTINUED]
