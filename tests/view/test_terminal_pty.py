"""The command in a real terminal: 80×24, a plain xterm, no colour, no mouse."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.view.library import Library
from tests.view.terminals import Terminal

VIEW = [sys.executable, "-m", "penstock.cli.main", "view"]
ENV = {"TERM": "xterm", "NO_COLOR": "1"}
#: Every sequence that an honest screen needs: cursor, attributes, modes, the pointer, questions about the terminal.
_KNOWN = re.compile(
    rb"\x1b(?:\[[0-9;:?=<>$]*[a-zA-Z~]|\[[?0-9;]*\$p|[()][A-Z0-9]|[=>78]|P[^\x1b]*\x1b\\|\]22;default\x07)"
)


def command(library: Library, *words: str) -> list[str]:
    """The view of the library's registry."""
    return [*VIEW, *words, "--registry", str(library.folder / "registry")]


def test_the_command_in_a_real_terminal(library: Library, recipe: str) -> None:
    """Goal: works over ssh at 80×24 without mouse or colour. Method: a pty, keys, and an emulator that reads the screen."""
    with Terminal(command(library, f"{recipe}#step=1"), env=ENV) as terminal:
        terminal.wait_for("row 0 token 0 ")
        assert terminal.lines[0].startswith("step 1  lane 0/1  4×128")
        assert "|1|" in terminal.lines[2]
        assert "? keys  q quit" in terminal.lines[23]
        terminal.press("\x1b[C")
        terminal.wait_for("row 0 token 1 ", line=20)
        terminal.press("]")
        terminal.wait_for("step 2 ", line=0)
        terminal.press("/")
        terminal.wait_for("search (text, or id=…):", line=23)
        terminal.press("family\r")
        terminal.wait_for("row 2 token ", line=20)
        terminal.press("grow=3,token=7\r")
        terminal.wait_for("row 3 token 7 ", line=20)
        terminal.resize(100, 30)
        terminal.wait_for("row 3 token 7 ", line=26)
        terminal.press("?")
        terminal.wait_for("next step")
        terminal.press("q")
        terminal.wait_for("row 3 token 7 ")
        terminal.press("q")
        assert terminal.wait_for_end() == 0
        # No colour, no mouse, and nothing of the data: what is left without known sequences has no control characters.
        assert not re.search(rb"\x1b\[[0-9;]*(?:3[0-7]|4[0-7]|9[0-7])m", terminal.sent)
        assert b"\x1b[?1000h" not in terminal.sent
        left = _KNOWN.sub(b"", terminal.sent)
        assert not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", left), left
        assert b"\x1b]0;" not in terminal.sent
        assert b"\x1b[31m" not in terminal.sent


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("nowhere@1", 2, "error: "),
        ("texts@1/row/999", 2, "error: "),
        ("no address", 2, "hint: addresses look like"),
        ("missing.toml", 2, "error: "),
    ],
)
def test_what_cannot_be_shown_is_a_sentence_and_an_exit_code(
    library: Library, address: str, code: int, words: str
) -> None:
    with Terminal(command(library, address), env=ENV) as terminal:
        assert terminal.wait_for_end() == code
        assert words.encode() in terminal.sent
        assert b"Traceback" not in terminal.sent


def test_damage_that_is_found_while_looking_is_a_sentence_and_the_view_goes_on(
    library: Library, tmp_path: Path
) -> None:
    path = tmp_path / "fragile.jsonl"
    path.write_text("".join(f'{{"n": {n}, "text": "{"word " * 40}"}}\n' for n in range(3000)))
    library.registry.register("fragile", path)
    with Terminal(command(library, "fragile@1"), env=ENV) as terminal:
        terminal.wait_for("row 0 of 3,000")
        terminal.wait_for("n 0 ")
        data = bytearray(path.read_bytes())
        data[-500:-400] = b"x" * 100
        path.write_bytes(data)
        terminal.press("g2999\r")
        terminal.wait_for("row 2,999 of 3,000", line=0)
        terminal.wait_for("is corrupt at byte")
        terminal.wait_for("2999 could not be read")
        terminal.press("\x1b[H")
        terminal.wait_for("row 0 of 3,000", line=0)
        terminal.press("q")
        assert terminal.wait_for_end() == 0


def test_one_can_leave_while_a_plan_is_being_measured(library: Library) -> None:
    """Goal: nobody waits. Method: a recipe that was never opened, of many texts; q as soon as it says how far it is."""
    library.add_texts("many", ["plain words and some more of them " * 40] * 30_000)
    with Terminal(command(library, f"{library.recipe('many@1', length=512)}#step=1"), env=ENV) as terminal:
        terminal.wait_for("opening (tokenising ", line=0)
        terminal.press("q")
        assert terminal.wait_for_end() == 0
        assert b"Traceback" not in terminal.sent
        assert b"Fatal" not in terminal.sent


def test_without_an_address_a_terminal_lists_datasets_and_a_pipe_gets_a_sentence(library: Library) -> None:
    with Terminal(command(library), env=ENV) as terminal:
        terminal.wait_for("datasets ", line=0)
        terminal.wait_for("texts")
        terminal.press("q")
        assert terminal.wait_for_end() == 0
    done = subprocess.run(command(library), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "an address is needed" in done.stderr
