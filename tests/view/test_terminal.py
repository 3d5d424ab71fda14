"""The token grid of the terminal view: what is on the screen, in text and in styles."""

import threading
from pathlib import Path

import numpy as np
import pytest

from penstock.view.address import parse
from penstock.view.model import BatchView
from penstock.view.terminal.grid import STRETCH, TokenGrid
from tests.view.library import Library
from tests.view.terminal_pages import Seen, grid_of, look


def test_tokens_are_coloured_by_segment_loss_and_source(library: Library, talks: str) -> None:
    """Goal: what one sees is what the batch says. Method: for every token on the screen, compare its style with the batch's columns."""

    async def script(seen: Seen) -> None:
        grid = grid_of(seen)
        view = grid.view
        await seen.press("end")
        for mode in ("segment", "loss", "source"):
            assert grid.mode == mode
            compared = 0
            for y, strip in enumerate(seen.strips[1:-4]):
                placed = _placed(grid, y)
                x = grid.number_width
                styles = {at: s.style for s, at in _cells(strip)}
                for row, cell in placed:
                    style = styles[x + cell.x]
                    if (row, cell.token) == grid.cursor:
                        assert style.reverse
                        continue
                    assert style.color is not None
                    assert style.color.name == _colour(view, mode, row, cell.token)
                    special = view.token(row, cell.token)["kind"] == "special"
                    assert bool(style.bold) == special
                    compared += 1
            assert compared > 100
            await seen.press("c")
        assert "colour by segment" in seen.lines[-1]

    look(library, f"{talks}#step=0", script)


def _placed(grid: TokenGrid, y: int) -> list:
    """Tokens on a line of the grid."""
    block, line = grid.top[0], grid.top[1] + y
    while block < grid.block_count() and line >= grid.height_of(block):
        line -= grid.height_of(block)
        block += 1
    if block >= grid.block_count() or grid.lines_of(block)[line] == "head":
        return []
    return [(block // grid._parts, cell) for cell in grid.lines_of(block)[line][0]]


def _cells(strip) -> list:
    """Every cell of a strip with its segment; no wide characters here."""
    cells, x = [], 0
    for segment in strip:
        cells += [(segment, x + at) for at in range(len(segment.text))]
        x += len(segment.text)
    return cells


def _colour(view: BatchView, mode: str, row: int, token: int) -> str:
    odd = token % 2
    segment = int(view.arrays["segments"][row, token])
    loss = bool(view.arrays["loss_mask"][row, token])
    hues = ["cyan", "green", "yellow", "magenta", "blue", "red"]
    if segment == 0 or (mode == "loss" and not loss):
        return "bright_black" if odd else "white"
    name = {"segment": hues[(segment - 1) % 6], "loss": "green", "source": "cyan"}[mode]
    return f"bright_{name}" if odd else name


@pytest.mark.usefixtures("colourless")
def test_without_colours_marks_say_where_something_changes(library: Library, talks: str) -> None:
    async def script(seen: Seen) -> None:
        assert all(
            s.style is None or s.style.color is None or s.style.color.is_default
            for strip in seen.strips
            for s in strip
        )
        assert "|1|" in seen.reversed_text()
        assert "|padding|" in seen.reversed_text()
        await seen.press("c")
        view = grid_of(seen).view
        mask = view.arrays["loss_mask"][0]
        edge = int(np.flatnonzero(mask)[0])
        text = view.window((0, 1), (edge, edge + 2)).text.decode()
        assert f"|loss|{text}" in seen.text
        assert "|no loss|" in seen.text
        await seen.press("c")
        assert "|talks|" in seen.text

    look(library, f"{talks}#step=0", script)


def text_at(grid: TokenGrid, row: int, token: int) -> str:
    """How a token looks among its neighbours."""
    return grid.view.window((row, row + 1), (token, token + 1), joined=True).text.decode()


def test_ids_specials_and_raw_bytes_are_seen(library: Library, talks: str) -> None:
    async def script(seen: Seen) -> None:
        view = grid_of(seen).view
        assert "<|user|>" in seen.lines[2]
        assert seen.style_of("<|user|>").bold
        # Characters are whole, and their bytes are one key away.
        assert "☃◂◂" in seen.text
        assert "\ufffd" not in seen.text
        await seen.press("i")
        ids = view.arrays["tokens"][0, :8].tolist()
        assert " ".join(map(str, ids)) in seen.lines[2]
        await seen.press("i")
        assert f"<|system|>‹{ids[0]}›" in seen.lines[2]
        await seen.press("i")
        assert "exact bytes" in seen.text
        assert "⟨E2⟩⟨98⟩⟨83⟩" in seen.text
        await seen.press("i")
        assert "☃◂◂" in seen.text
        assert "‹" not in seen.text

    look(library, f"{talks}#step=0", script)


def test_the_status_says_all_about_the_token_under_the_cursor(library: Library, recipe: str) -> None:
    async def script(seen: Seen) -> None:
        grid = grid_of(seen)
        assert grid.cursor == (2, 50)
        for keys in (
            [],
            ["right"],
            ["down"],
            ["left", "up"],
            ["home"],
            ["end"],
            ["right_curly_bracket"],
            ["pageup"],
        ):
            await seen.press(*keys)
            detail = grid.view.token(*grid.cursor)
            first, second, third = seen.lines[-4:-1]
            assert first.startswith(
                f"row {detail['row']} token {detail['token']}  id {detail['id']}  {detail['kind']}"
            )
            data = detail["bytes"]
            assert " ".join(data[at : at + 2] for at in range(0, len(data), 2)) in first
            assert (
                f"segment {detail['segments']}  position {detail['positions']}  loss {detail['loss_mask']}"
                in second
            )
            if detail["origin"]:
                (origin,) = detail["origin"]
                assert third.startswith(f"{origin['version']}/row/{origin['sample']} ")
                assert origin["shard"] in third
            else:
                assert third.startswith("from no sample")
            # The cursor is where it is said to be.
            assert "".join(seen.reversed_text()) == text_at(grid, *grid.cursor)

    look(library, f"{recipe}#step=1,row=2,token=50", script)


def test_only_what_is_seen_is_laid_out(library: Library, tmp_path: Path) -> None:
    """Goal: windows, never everything. Method: page through the middle of half a million tokens and count stretches."""
    np.save(tmp_path / "long.npy", np.arange(64 * 8192, dtype=np.uint32).reshape(64, 8192) % 50_000)
    library.registry.register("long", tmp_path / "long.npy")
    file = library.write("long.toml", 'batch = 64\nshuffle = "none"\n[[sources]]\nname = "long@1"\n')

    async def script(seen: Seen) -> None:
        grid = grid_of(seen)
        assert grid.cursor == (40, 5000)
        await seen.press("pagedown", "pagedown", "up", "end", "ctrl+home")
        assert grid.cursor == (0, 0)
        assert len(grid._laid) * STRETCH < 64 * 8192 / 16

    look(library, f"{file}#step=0,row=40,token=5000", script)


@pytest.mark.parametrize("size", [(20, 8), (40, 12), (200, 60)])
def test_the_cursor_stays_in_sight_whatever_the_size(
    library: Library, recipe: str, size: tuple[int, int]
) -> None:
    async def script(seen: Seen) -> None:
        await seen.pilot.resize_terminal(*size)
        await seen.settle()
        assert seen.app.size == size
        assert {strip.cell_length for strip in seen.strips} == {size[0]}
        grid = grid_of(seen)
        text = text_at(grid, 3, 100)
        assert "".join(seen.reversed_text()) == text
        await seen.pilot.resize_terminal(80, 24)
        await seen.settle()
        assert "".join(seen.reversed_text()) == text

    look(library, f"{recipe}#step=1,row=3,token=100", script)


def test_no_page_sends_a_control_character(library: Library, recipe: str) -> None:
    """Goal: V1. Method: look at hostile text on every page; every character on the screen can be printed."""

    async def script(seen: Seen) -> None:
        for keys in (
            ["c"],
            ["i"],
            ["i"],
            ["i"],
            ["pagedown"],
            ["o"],
            ["r"],
            ["enter"],
            ["n"],
            ["escape"],
            ["escape"],
            ["y"],
            ["escape"],
        ):
            await seen.press(*keys)
            assert all(line.isprintable() for line in seen.lines), keys
        await seen.type("d", "step=1")
        assert all(line.isprintable() for line in seen.lines)
        await seen.type("g", "texts@1")
        assert all(line.isprintable() for line in seen.lines)
        assert "␛[31malarm" in seen.text

    look(library, f"{recipe}#step=0", script)


def test_keys_answer_while_something_is_loaded_and_the_newest_request_counts(
    library: Library, recipe: str
) -> None:
    """Goal: the screen never freezes. Method: work that ends when the test says so; the cursor moves meanwhile."""

    async def script(seen: Seen) -> None:
        page, grid, go_on = seen.app.screen, grid_of(seen), threading.Event()
        came: list[str] = []
        page.ask("work", lambda: go_on.wait(30) and "first", came.append)
        page.ask("work", lambda: "second", came.append)
        page.ask("work", lambda: "third", came.append)
        assert "loading…" in seen.lines[0] or await seen.pilot.pause() is None
        await seen.pilot.press("right", "right")
        await seen.pilot.pause()
        assert grid.cursor == (0, 2)
        assert seen.lines[0].startswith(" loading… ")
        go_on.set()
        await seen.settle()
        assert came == ["third"]
        assert "loading" not in seen.lines[0]

    look(library, f"{recipe}#step=0", script)


def test_columns_of_numbers_are_colours_from_low_to_high(library: Library, recipe: str) -> None:
    """Goal: logprobs at a glance. Method: the arrays of a training loop with a column that grows along every row."""
    base = library.opener.open(parse(f"{recipe}#step=0")).batch()
    logprobs = np.tile(np.linspace(-5, 0, base.length), (base.rows, 1))
    logprobs[0, 4] = np.nan
    view = BatchView(
        {**base.arrays, "logprobs": logprobs},
        address=base.address,
        sources=base.sources,
        documents=base.documents,
        facts=base.facts(),
    )

    async def script(seen: Seen) -> None:
        grid = grid_of(seen)
        grid.look_at(view)
        await seen.press("right_curly_bracket", "c", "c", "c")
        assert grid.mode == "logprobs"
        assert "colour by logprobs: low" in seen.lines[-1]
        colours = {grid._value_style(value, 0, odd=False).color.name for value in logprobs[1]}
        assert colours == {"blue", "cyan", "green", "yellow", "red"}
        row = next(n for n, line in enumerate(seen.lines) if "row 1 " in line) + 1
        assert seen.strips[row]._segments[2].style.color.name == "bright_blue"

    look(library, f"{recipe}#step=0", script)
