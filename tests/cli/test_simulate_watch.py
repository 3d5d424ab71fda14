"""``penstock simulate --watch`` on real terminals: of any size, with any keys, with few letters; and where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.view.terminals import Terminal

WATCH = [
    sys.executable,
    "-m",
    "penstock.cli.main",
    "simulate",
    "--hosts",
    "256",
    "--racks",
    "8",
    "--for",
    "2d",
    "--watch",
]
#: A name that would steer a terminal, of a rack that fails every hour.
PROFILE = """
name = "racks"
[[cause]]
name = "switch \\u001b]0;owned\\u0007"
per_1000_host_days = 60
loses = "rack"
repair = "2h"
"""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "racks.toml").write_text(PROFILE)
    return {"PENSTOCK_HOME": str(tmp_path), "TERM": "xterm", "NO_COLOR": "1"}


def test_a_rack_is_seen_to_fail_on_a_terminal_of_any_size_whatever_is_pressed(
    variables: dict[str, str], tmp_path: Path
) -> None:
    """Method: step to what happens next until a rack is unheard, on 80 x 24; open it; then other sizes and many keys at once."""
    words = [*WATCH, "--faults", str(tmp_path / "racks.toml"), "--speed", "1"]
    with Terminal(words, env=variables) as terminal:
        terminal.wait_for("256 imagined hosts")
        terminal.press(" ")
        terminal.wait_for("paused")
        for _ in range(20):
            if any("unheard: host[" in line for line in terminal.lines):
                break
            shown = terminal.lines
            terminal.press("n")
            terminal.wait_until(lambda shown=shown: terminal.lines != shown)  # type: ignore[misc]
        assert any("?" * 32 in line for line in terminal.lines)
        terminal.press("w\r")
        terminal.wait_for("an imagined host runs nothing")
        terminal.press("\x1b")
        terminal.wait_for("arrows")
        terminal.resize(30, 8)
        terminal.press("\x1b[Zjjkk" * 20 + "é漢+-0")
        terminal.wait_until(lambda: "256 imagined" in terminal.lines[0])
        assert b"\x1b]0;owned" not in terminal.sent
        terminal.press("\x04")
        assert terminal.wait_for_end() == 0


def test_a_terminal_of_few_letters_gets_letters_that_it_has(
    variables: dict[str, str], tmp_path: Path
) -> None:
    few = {
        **variables,
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    with Terminal([*WATCH, "--faults", str(tmp_path / "racks.toml")], env=few) as terminal:
        terminal.wait_for("- lease 30 s")
        terminal.wait_for("> host000")
        assert terminal.sent.isascii()
        assert b"\\x" not in terminal.sent
        terminal.press("q")
        assert terminal.wait_for_end() == 0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "--watch needs a terminal"),
        (["--json"], "--watch plays one life"),
        (["--compare", "lease=10s,20s"], "--watch plays one life"),
        (["--speed", "0"], "--speed must be from 0.1 to 86400, got 0"),
        (["--speed", "nan"], "--speed must be from 0.1 to 86400, got nan"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(more: list[str], says: str) -> None:
    done = subprocess.run(
        [*WATCH, *more], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_a_terminal_that_cannot_be_drawn_on_twice_is_told(variables: dict[str, str]) -> None:
    with Terminal(WATCH, env={**variables, "TERM": "dumb"}) as terminal:
        terminal.wait_for("--watch needs a terminal whose cursor can be moved")
        assert terminal.wait_for_end() == 2
