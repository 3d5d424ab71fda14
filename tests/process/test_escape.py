"""What ranks write does not steer the person's terminal, whichever command shows it; in a pipe every byte stays."""

import ast
import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock.cli as penstock_cli
from penstock.cli.escape import coloured, harmless, said, unsteering
from tests.process.jobs import PATIENCE_S, PENSTOCK, Running, penstock

Run = Callable[..., Running]
#: The clipboard, a reset, a cleared screen, a title, a bell, another character set, controls of eight bits, a turned direction.
STEERING = "\x1b]52;c;ZXZpbA==\x07|\x1bc|\x1b[2J|\x1b]0;title\x1b\\|\a|\x0e|\x9b2J|\u202e|\x1bP+q\x1b\\"
COLOURED = "\x1b[31mred\x1b[0m"
ATTACK = f"import sys; text = {STEERING + COLOURED!r}; print(text); sys.exit('last words: ' + text)"


def on_terminal(home: Path, *words: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "PENSTOCK_HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "200"}
    shown = subprocess.Popen([*PENSTOCK, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    text = b""
    try:
        while piece := os.read(ours, 1 << 16):
            text += piece
    except OSError:
        # The other end is closed.
        pass
    os.close(ours)
    shown.wait(PATIENCE_S)
    return text.decode()


def steers(text: str) -> list[str]:
    """What of the text a terminal would obey, but colours and ends of lines."""
    return re.findall(
        r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]", re.sub(r"\x1b\[[\d;]*m", "", text)
    )


def test_no_command_lets_a_rank_steer_the_terminal(run: Run) -> None:
    """Goal: one filter for all that is shown. Method: a rank that writes every kind of sequence and dies; each command on a terminal."""
    running = run("--ranks", "2", "--name", "evil", "--", "python3", "-S", "-c", ATTACK)
    assert running.launcher is not None
    out, err = running.launcher.communicate(timeout=PATIENCE_S)
    assert STEERING.encode() in out + err, "in a pipe bytes stay as they are"
    name = running.job.id
    for words in (
        ["logs"],
        ["logs", "--rank", "0"],
        ["logs", "--grep", "red"],
        ["incident"],
        ["events"],
        ["ps"],
    ):
        shown = on_terminal(running.home, words[0], name, *words[1:])
        assert "red" in shown or words == ["ps"], words
        assert steers(shown) == [], words
    assert "\x1b[31mred" in on_terminal(running.home, "logs", name)
    assert steers(on_terminal(running.home, "logs", name, "--json")) == []

    piped = penstock(running.home, "logs", name, "--rank", "0", "--stream", "stdout").stdout
    assert piped == STEERING + COLOURED + "\n"
    texts = [
        json.loads(line)["text"]
        for line in penstock(running.home, "logs", name, "--json").stdout.splitlines()
    ]
    assert STEERING + COLOURED in texts


def test_commands_about_jobs_print_through_the_filter_only() -> None:
    """Goal: the next command has the filter, too. Method: no plain `print` there, but for the start of a job, which prints its own name."""
    folder = Path(penstock_cli.__file__).parent
    files = [*folder.glob("job/*.py"), *folder.glob("run/*.py"), folder / "events.py"]
    assert len(files) > 15
    printing = {
        path.name
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing <= {"command.py"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 日本\ttab", "plain é 日本\ttab"),
        (COLOURED, COLOURED),
        (STEERING, "||||||2J||"),
        ("bar 10%\rbar 20%\r\nnext", "bar 10%\rbar 20%\r\nnext"),
        ("torn \x1b]0;title\nnext line", "torn \nnext line"),
        ("torn \x1b", "torn "),
        ("\x1b[38;5;1mx\x1b[?25l", "\x1b[38;5;1mx"),
    ],
)
def test_of_logs_colours_stay(text: str, shown: str) -> None:
    assert coloured(text.encode()).decode() == shown


def test_bytes_that_are_no_text_stay_unless_they_steer() -> None:
    assert coloured(b"\xff\xfe caf\xe9 \x9b2J") == b"\xff\xfe caf\xe9 2J"


def test_text_is_spelt_out_where_colours_would_be_in_the_way() -> None:
    assert said(f"{COLOURED} \x1b[2J") == r"red \x1b[2J"
    assert harmless("\x1b[31m\u202e") == r"\x1b[31m\u202e"
    document = json.dumps({"a": "\x9b\u202e\x1b"}, ensure_ascii=False)
    assert json.loads(unsteering(document)) == json.loads(document)
    assert steers(unsteering(document)) == []
