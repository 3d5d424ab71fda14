"""Going from page to page in the terminal view: browsing, jumping, searching, origins, differences."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import AddressUnknown, PenstockError, RowOutOfRange
from penstock.view.address import parse
from penstock.view.terminal.grid import TokenGrid
from penstock.view.terminal.paged_list import PAGE, Listing
from tests.conftest import ROOT
from tests.data.gallery import Gallery
from tests.view.library import Library
from tests.view.terminal_pages import Seen, grid_of, look


def test_a_long_list_of_datasets_is_searched(library: Library) -> None:
    async def script(seen: Seen) -> None:
        every = library.registry.datasets()
        await seen.type("slash", "TALK")
        wanted = [name for name in every if "talk" in name]
        assert f"{len(wanted)} with “TALK” of {len(every)}" in seen.lines[0]
        assert [line.strip() for line in seen.lines[1:-1] if line.strip()] == wanted
        await seen.type("slash", "nowhere")
        assert "no dataset has “TALKnowhere” in its name" in seen.lines[-1]
        await seen.press("enter")
        assert seen.lines[0].startswith(f"{wanted[0]} ")

    look(library, None, script)


def test_one_browses_from_datasets_to_a_sample_and_back(library: Library) -> None:
    async def script(seen: Seen) -> None:
        assert seen.lines[0].startswith("datasets  ")
        names = [line.strip() for line in seen.lines[1:-1] if line.strip()]
        assert names == library.registry.datasets()
        await seen.press(*["down"] * names.index("texts"), "enter")
        assert "texts@1" in seen.lines[1]
        assert "56 rows" in seen.lines[1]
        await seen.press("enter")
        assert seen.lines[0].startswith("texts@1  row 0 of 56")
        assert "text red ␛[31malarm␛[0m bell␇" in seen.lines[4]
        await seen.press("down", "down", "down", "enter")
        assert seen.lines[0].startswith("texts@1/row/3  ")
        assert "text  text, " in seen.text
        assert "red ␛[31malarm␛[0m bell␇ and ␛]0;title␇" in seen.text
        await seen.press("n", "n")
        assert seen.lines[0].startswith("texts@1/row/5  ")
        # A line feed of the sample is a line of the screen.
        assert [line.strip() for line in seen.lines if "line " in line] == ["line one", "line two⇥tab␍"]
        for title in ("texts@1  row 3", "texts ", "datasets"):
            await seen.press("escape")
            assert seen.lines[0].startswith(title)
        await seen.press("escape")
        assert "this is the first page" in seen.lines[-1]
        await seen.press("q")

    assert look(library, None, script).return_code == 0


def test_rows_come_in_pages_and_far_ones_as_near_ones(library: Library, tmp_path: Path) -> None:
    """Goal: never everything. Method: jump into the middle of a million rows; the pages that were fetched are those of two screens."""
    np.save(tmp_path / "rows.npy", np.arange(2_000_000, dtype=np.uint32).reshape(-1, 2))
    library.registry.register("million", tmp_path / "rows.npy")

    async def script(seen: Seen) -> None:
        assert "row 0 of 1,000,000" in seen.lines[0]
        await seen.type("g", "765432")
        listing = seen.app.screen.query_one(Listing)
        assert listing.cursor == 765432
        assert any("1530864 1530865" in line for line in seen.lines)
        assert seen.app.screen.query_one(Listing).top[0] < 765432
        assert set(listing._pages) <= {0, *range(765432 // PAGE - 1, 765432 // PAGE + 2)}
        await seen.press("end")
        assert "1999998 1999999" in seen.lines[-2]
        await seen.type("g", "row=1000000")
        assert "there is no row 1,000,000: the version has 1,000,000" in seen.lines[-1]
        await seen.press("home")
        assert listing.cursor == 0

    look(library, "million@1", script)


def test_one_jumps_to_steps_lanes_rows_and_tokens(library: Library, recipe: str) -> None:
    async def script(seen: Seen) -> None:
        grid = grid_of(seen)
        await seen.press("right_square_bracket")
        assert seen.lines[0].startswith("step 1 ")
        await seen.press("left_square_bracket", "left_square_bracket")
        assert seen.lines[0].startswith("step 0 ")
        assert "step 0 is the first" in seen.lines[-1]
        await seen.type("g", "step=2,row=3,token=77")
        assert seen.lines[0].startswith("step 2 ")
        assert grid.cursor == (3, 77)
        assert seen.lines[-4].startswith("row 3 token 77 ")
        await seen.type("g", "lane=1/2")
        assert seen.lines[0].startswith("step 2  lane 1/2  2×128")
        await seen.press("greater_than_sign")
        assert seen.lines[0].startswith("step 2  lane 0/2  2×128")
        # Rows of a lane are rows of the step.
        whole = library.opener.open(parse(f"{recipe}#step=2")).batch()
        assert np.array_equal(grid.view.arrays["tokens"], whole.arrays["tokens"][:2])
        before = seen.lines[0]
        for bad, words in (
            ("row=99", "no row 99"),
            ("lane=0/3", "3 lanes"),
            ("banana=", "is not an address"),
            ("nope@1", "nope"),
        ):
            await seen.type("g", bad)
            assert words in "".join(seen.lines[-4:]), bad
            assert seen.style_of(words).color.name == "red"
            assert seen.lines[0] == before
        await seen.type("g", "texts@1/row/3")
        assert seen.lines[0].startswith("texts@1/row/3 ")

    look(library, recipe, script)


def test_search_goes_from_match_to_match_and_around(library: Library, recipe: str) -> None:
    async def script(seen: Seen) -> None:
        grid = grid_of(seen)
        await seen.type("slash", "snow ☃")
        first = grid.cursor
        row, token = first
        text = "".join(piece for piece in grid.view.window((row, row + 1), (token, token + 8)).texts()[0])
        assert text.startswith("snow ⟨E2⟩⟨98⟩⟨83⟩")
        assert seen.style_of("☃").bgcolor.name == "yellow"
        places = [first]
        for _ in range(40):
            await seen.press("n")
            if grid.cursor == first:
                break
            places.append(grid.cursor)
        assert places == sorted(places)
        assert grid.cursor == first
        assert "around the end" in seen.lines[-1]
        await seen.press("N")
        assert grid.cursor == places[-1]
        await seen.type("slash", "nowhere to be found")
        assert "is nowhere in this batch" in seen.lines[-1]

    look(library, f"{recipe}#step=0", script)


def test_the_origin_shows_text_beside_tokens_with_one_cursor(library: Library, talks: str) -> None:
    async def script(seen: Seen) -> None:
        view = grid_of(seen).view
        await seen.type("slash", "☃")
        row, token = grid_of(seen).cursor
        (origin,) = view.origin(row, token)
        await seen.press("o")
        assert seen.lines[0].startswith(f"talks@1/row/{origin.sample}  talks")
        # The character in the text, and at its first token; the status has the token's own bytes.
        assert seen.reversed_text() == ["☃", "☃"]
        assert "“⟨E2⟩”" in seen.text
        await seen.press("right")
        assert seen.reversed_text() == ["☃", "◂"]
        assert "“⟨98⟩”" in seen.text
        await seen.press("right", "right")
        assert seen.reversed_text() == ["<|end|>", "<|end|>"]
        # The same from the other pane: a character back is a character.
        await seen.press("tab", "left")
        assert seen.reversed_text() == ["☃", "☃"]
        await seen.press("r")
        assert "messages" in seen.text
        assert '"role":"system"' in seen.text.replace(" ", "").replace("\n", "")
        await seen.press("enter")
        assert seen.lines[0].startswith(f"talks@1/row/{origin.sample}  ")
        await seen.press("escape", "escape")
        assert grid_of(seen).cursor == (row, token)
        await seen.press("end", "o")
        assert "is padding, so it comes from no sample" in seen.lines[-1]

    look(library, f"{talks}#step=0", script)


@pytest.mark.parametrize("size", [(80, 24), (81, 24), (120, 40)])
def test_a_difference_begins_at_the_first_and_both_sides_scroll_as_one(
    library: Library, recipe: str, size: tuple[int, int]
) -> None:
    async def script(seen: Seen) -> None:
        one = grid_of(seen).view
        await seen.type("d", "step=1")
        left, right = seen.app.screen.query(TokenGrid)
        other = right.view
        table = (one.arrays["tokens"] != other.arrays["tokens"]) | (
            one.arrays["loss_mask"] != other.arrays["loss_mask"]
        )
        places = [tuple(map(int, place)) for place in np.argwhere(table)]
        assert left.cursor == right.cursor == places[0]
        assert f"{len(places)} tokens in " in seen.lines[0]
        for at in range(1, 4):
            await seen.press("n")
            assert left.cursor == right.cursor == places[at]
        await seen.press("pagedown")
        assert left.top == right.top
        assert left.cursor == right.cursor
        assert [left.height_of(n) for n in range(4)] == [right.height_of(n) for n in range(4)]
        await seen.press("tab", "pagedown", "down")
        assert left.top == right.top
        assert left.cursor == right.cursor
        assert seen.lines[-4].startswith(f"left  row {left.cursor[0]} token {left.cursor[1]}  id ")
        await seen.press("escape")
        await seen.type("d", "step=0")
        assert "equal" in seen.lines[0]
        await seen.press("n")
        assert "both sides are equal" in seen.lines[-1]
        await seen.press("escape")
        await seen.type("d", "texts@1")
        assert "with another batch only" in seen.lines[-1]

    look(library, f"{recipe}#step=0", script, size=size)


def test_the_address_can_be_copied_and_the_keys_are_listed(library: Library, recipe: str) -> None:
    async def script(seen: Seen) -> None:
        await seen.press("right", "y")
        flat = "".join(line.rstrip(" │█") for line in seen.lines)
        assert f"{recipe}#step=1,row=0,token=1" in flat
        assert f"penstock view {recipe}#step=1,row=0,token=1" in flat
        assert "penstock data peek" in flat
        await seen.press("escape", "question_mark")
        listed = seen.text
        await seen.press("pagedown")
        listed += seen.text
        for words in (
            "next step",
            "next lane",
            "search",
            "next match",
            "origin",
            "diff",
            "ids",
            "colour",
            "page down",
            "quit",
        ):
            assert words in listed
        await seen.press("escape", "q")

    assert look(library, f"{recipe}#step=1", script).return_code == 0


def test_a_batch_of_records_lists_rows_with_fields_by_kind(tmp_path: Path) -> None:
    gallery = Gallery.make(tmp_path)
    file = tmp_path / "records.toml"
    file.write_text('batch = 6\n[[sources]]\nname = "pictures@1"\n[[sources]]\nname = "moves@1"\n')

    async def script(seen: Seen) -> None:
        assert seen.lines[0].startswith("step 1  lane 0/1  6 records")
        row = next(n for n, line in enumerate(seen.lines) if "pictures@1/row/" in line)
        await seen.press(*["down"] * (row - 1), "enter")
        assert "image/png" in seen.text
        await seen.press("y")
        assert f"step=1,row={row - 1}" in seen.text
        await seen.press("escape", "escape")
        await seen.type("d", "step=0")
        assert "first difference: row 0" in seen.text
        await seen.press("escape", "right_square_bracket")
        assert seen.lines[0].startswith("step 2 ")
        assert "@1/row/" in seen.lines[1]

    look(gallery, f"{file}#step=1", script)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "problem"),
    [("nowhere@1", AddressUnknown), ("texts@1/row/999", RowOutOfRange), ("missing.toml", PenstockError)],
)
def test_what_cannot_be_opened_ends_the_view_with_its_reason(
    library: Library, address: str, problem: type
) -> None:
    async def script(seen: Seen) -> None:
        assert not seen.app.is_running or seen.app.problem is not None

    assert isinstance(look(library, address, script).problem, problem)


def test_two_versions_are_compared(library: Library) -> None:
    library.add("twice", [{"n": n, "word": "same"} for n in range(9)])
    library.add("twice", [{"n": n, "word": "same" if n < 7 else "\x1b[31mother"} for n in range(9)])

    async def script(seen: Seen) -> None:
        await seen.type("d", "twice@2")
        assert seen.lines[0].startswith("difference")
        assert "first difference: row 7, field word" in seen.text
        assert "␛[31mother" in seen.text
        await seen.press("escape")
        assert seen.lines[0].startswith("twice@1")

    look(library, "twice@1", script)


def test_one_follows_a_feed_that_runs(library: Library, recipe: str, tmp_path: Path) -> None:
    """Goal: `penstock view run:…` on what runs now. Method: a real process that reads batches when it is told to."""
    program = [sys.executable, "-m", "tests.view.feeding", str(library.folder / "registry"), recipe]
    process = subprocess.Popen(
        [*program, str(tmp_path / "reader.tap")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def read_on() -> int:
        process.stdin.write("next\n")
        process.stdin.flush()
        return int(process.stdout.readline().split()[0])

    assert process.stdout.readline() == "ready\n"
    first = read_on()

    async def script(seen: Seen) -> None:
        assert seen.lines[0].startswith(f"step {first} ")
        newest = [read_on() for _ in range(3)][-1]
        await seen.press("f")
        assert seen.lines[0].startswith(f"step {newest} ")
        await seen.press("left_square_bracket")
        assert seen.lines[0].startswith(f"step {newest - 1} ")

    look(library, "run:reader", script, taps=tmp_path)
    process.kill()
    process.communicate()

    async def without(seen: Seen) -> None:
        await seen.press("f")
        assert "a recipe has no newest step" in seen.lines[-1]

    look(library, recipe, without)
