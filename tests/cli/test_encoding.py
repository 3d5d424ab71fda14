"""Any locale and any pipe: what an encoding lacks is escaped, JSON stays JSON, and nothing ends in a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.cli.commands import COMMANDS

TEXT = "日本語 ☃ – ü שלום \U0001f600"
#: As a cron job, a container without locales, an old terminal and a build system have them.
PLACES = {
    "C": {"LC_ALL": "C"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "C without UTF-8 mode": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "latin-1": {"PYTHONIOENCODING": "latin-1:strict"},
}
PROBE = """
import sys
from penstock.cli.main import main
for words in {lines!a}:
    print("code", main(words), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry of text that no old encoding has."""
    folder = tmp_path_factory.mktemp("encoding")
    (folder / "rows.jsonl").write_text(json.dumps({"text": TEXT}) + "\n", encoding="utf-8")
    ps.Registry(folder / "registry").register("web", folder / "rows.jsonl", about=ps.About(note=TEXT))
    return folder


def run(home: Path, place: str, lines: list[list[str]]) -> "subprocess.CompletedProcess[bytes]":
    """Commands in one process whose streams are pipes of an encoding."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LC_", "LANG", "PYTHONUTF8", "PYTHONIO"))
    }
    kept |= PLACES[place] | {"PENSTOCK_HOME": str(home), "PENSTOCK_REGISTRY": str(home / "registry")}
    probe = home / "probe.py"
    probe.write_text(PROBE.format(lines=lines), encoding="ascii")
    words = [sys.executable, str(probe)]
    return subprocess.run(words, cwd=home, env=kept, capture_output=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("place", PLACES)
def test_no_command_ends_in_a_traceback_and_json_stays_json(home: Path, place: str) -> None:
    lines = [
        ["data", "rows", "web", "--json"],
        ["view", "web@1", "--json"],
        ["data", "list"],
        ["data", "show", "web"],
        ["data", "rows", "web"],
        ["view", "web@1"],
        ["view", "web@1", "--export", "page.html"],
        ["jobs"],
        ["data", "show", f"web@{TEXT}"],
        ["data", "register", "odd", os.fsdecode(b"\xff.jsonl")],
        ["events", f"{TEXT}.pev"],
    ]
    if place == "ascii":
        lines += [[command.name, "--help"] for command in COMMANDS] + [["doctor"], ["slots"]]
    done = run(home, place, lines)

    assert b"Traceback" not in done.stderr, done.stderr.decode("ascii", "replace")
    codes = [line.split()[1] for line in done.stderr.splitlines() if line.startswith(b"code ")]
    assert len(codes) == len(lines)
    assert set(codes) <= {b"0", b"1", b"2"}
    rows, view = (json.loads(line) for line in done.stdout.splitlines()[:2])
    assert rows["text"] == view["about"]["note"] == TEXT
    assert TEXT in (home / "page.html").read_text(encoding="utf-8")


def test_data_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Goal: a row, a field's name or a file's name never reaches a terminal as commands. Method: escapes in all of them."""
    steering = "\x1b]0;title\x07\x1b[2J\x9b1m\u202e\r"
    name = "odd\x1b[31m.jsonl"
    (tmp_path / name).write_text(json.dumps({f"a{steering}": steering, "text": "x"}) + "\n")
    (tmp_path / f"empty{name}").touch()
    here = ["--registry", str(tmp_path / "registry")]
    lines = [
        ["data", "register", "web", str(tmp_path), *here],
        *(["data", verb, "web", *here] for verb in ("rows", "show", "list", "files")),
        ["view", "web@1/row/0", *here],
        ["view", "web@1", *here],
        ["data", "register", "web", str(tmp_path / f"none{name}"), *here],
        ["data", "rows", f"web{steering}", *here],
    ]
    command = [sys.executable, "-c", PROBE.format(lines=lines)]
    done = subprocess.run(command, capture_output=True, timeout=120, cwd=tmp_path)
    said = done.stdout + done.stderr
    for mark in ("\x1b", "\x07", "\x9b", "\u202e", "\r"):
        assert mark.encode() not in said, said
    assert b"Traceback" not in said
    assert said.count(b"code 0") >= 5, said
