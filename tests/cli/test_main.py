"""The frame of the command line: every command has a purpose, examples and JSON, and bad input gets a sentence."""

import json
import os
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

from penstock.cli.commands import COMMANDS
from penstock.cli.job.ps import app as ps_app
from penstock.cli.main import main
from penstock.cli.questions.process_table import Wish, read
from penstock.cli.root import root as root_app

HEAVY = {"cyclopts", "jax", "numpy", "pyarrow", "rich", "starlette", "textual", "torch"}


def modules_after(code: str) -> set[str]:
    """Which heavy modules a fresh interpreter has after running some code."""
    probe = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return HEAVY & set(json.loads(done.stderr.splitlines()[-1]))


def test_importing_penstock_imports_no_framework() -> None:
    assert modules_after("import penstock; dir(penstock)") == set()


def test_help_is_answered_without_the_command_line_library() -> None:
    assert modules_after("from penstock.cli.main import main; main(['--help'])") == set()


def test_jobs_are_shown_without_the_command_line_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    assert modules_after("from penstock.cli.main import main; assert main(['ps']) == 0") == set()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--all"],
        ["train", "--json"],
        ["--by", "host", "train"],
        ["train", "--by=rank", "--patience", "0.5"],
        ["--patience=3", "--all", "--json"],
    ],
)
def test_usual_words_of_ps_mean_what_they_mean_to_the_library(words: list[str]) -> None:
    """Goal: the reader of usual words agrees with the options that ``--help`` shows."""
    command, bound, _ = ps_app.parse_args(words, exit_on_error=False, print_error=False)
    asked = {
        **{name: field.default for name, field in signature(command).parameters.items()},
        **bound.arguments,
    }
    wish = Wish(asked["job"], asked["all_"], asked["by"], asked["patience"], asked["json"])
    assert read(words) == wish


@pytest.mark.parametrize(
    "words", [["--help"], ["a", "b"], ["--by", "none"], ["--by"], ["--patience", "-1"], ["--al"]]
)
def test_other_words_of_ps_are_for_the_library(words: list[str]) -> None:
    assert read(words) is None


def test_the_table_of_commands_agrees_with_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        app = root_app()[command.name]
        assert app.name == (command.name,)
        assert app.help == command.purpose


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_has_purpose_examples_and_json(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0

    text = capsys.readouterr().out
    assert f"penstock {command}" in text.partition("examples:")[2]
    # A group of commands has none of its own; its commands do.
    assert "--json" in text or "COMMAND" in text


@pytest.mark.parametrize("words", [["--version"], ["data", "list"], ["doctor", "--help"]])
def test_output_that_cannot_be_written_is_said(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", *words]
    environment = {**os.environ, "PENSTOCK_HOME": str(tmp_path)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("penstock 0.")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["evnts"], "unknown command 'evnts'", "did you mean `penstock events`?"),
        (["qqqqqq"], "unknown command 'qqqqqq'", "`penstock --help` lists the commands"),
        (["doctor", "--bogus"], "--bogus", "`penstock doctor --help` shows the options"),
        (["events"], "--what", "`penstock events --help` shows the options"),
        (["events", "missing.pev"], "cannot open event file missing.pev", ""),
    ],
)
def test_bad_input_gets_a_sentence_a_hint_and_exit_code_2(
    words: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert hint in captured.err
    assert "Traceback" not in captured.err


def test_debug_shows_the_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "events", "missing.pev", "--debug"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "EventFileUnusable" in done.stderr


def test_a_reader_that_leaves_is_no_failure(tmp_path: Path) -> None:
    script = "from penstock import events\nwith events.recording('a.pev'):\n    [events.record('x', n=n) for n in range(50_000)]"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    pipeline = f"{sys.executable} -m penstock.cli.main events a.pev | head -n 1"
    done = subprocess.run(["bash", "-c", pipeline], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command.name in script for command in COMMANDS)


def test_bash_completes_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    ask = "source ./script; COMP_WORDS=(penstock doc); COMP_CWORD=1; _penstock; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["doctor"]


@pytest.mark.parametrize("words", [["run", "--", "echo", "here"], ["data", "list"]])
def test_a_directory_that_is_gone_is_told_as_such(tmp_path: Path, words: list[str]) -> None:
    """Goal: no bare "No such file or directory". Method: start in a directory, and remove it first."""
    command = f'cd "{tmp_path}" && mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    variables = {**os.environ, "PENSTOCK_HOME": str(tmp_path / "home"), "PENSTOCK_REGISTRY": "registry"}
    call = ["bash", "-c", command, "-", sys.executable, "-m", "penstock.cli.main", *words]
    done = subprocess.run(call, env=variables, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the directory that this command was started in is gone\n\nhint: ")
