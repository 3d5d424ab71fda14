"""One address: every command about a run takes its directory, ``run:DIR`` and a name below ``runs/``, and says the same of each.

The commands are taken from the table of commands: one whose help speaks of a run's directory has to be here, with the words that it needs
beside an address.
"""

import re
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from penstock.cli.commands import COMMANDS
from penstock.cli.main import main
from tests.view.run_exhibit import make_runs

ADDRESSES = ("runs/slow", "run:runs/slow", "slow", "run:slow")
#: Execute the run's program again, which takes seconds: the three ways of the guide.
DEAR = ("runs prove", "runs replay")
#: What a command needs beside the address; RUN stands for it.
WORDS: dict[str, list[str]] = {
    "report": ["RUN"],
    "compare": ["RUN", "runs/bare"],
    "top": ["RUN", "--once"],
    "events": ["RUN", "--summary"],
    "view": ["RUN#step=3", "--text", "--registry", "registry"],
    "runs show": ["RUN"],
    "runs prove": ["RUN", "--steps", "0:1", "--anyway"],
    "runs replay": ["RUN", "--step", "1"],
    "runs watch": ["RUN", "--once"],
    "runs export": ["RUN", "--to", "parquet:exported"],
    "checkpoint list": ["RUN"],
    "checkpoint show": ["RUN"],
    "checkpoint verify": ["RUN"],
}
#: What differs between two executions, or says how the address was written.
VARYING = re.compile(
    r"\d+\.\d+ s(?:, \d+\.\d+ x)?|run:|runs/|/\S*|took .*|.*(?:address|penstock ).*|\d+\.\d+e?[+-]?\d*"
)
#: Takes a run only as a whole command line of its own, or a folder of runs.
ELSEWHERE = {"runs list", "web"}


def commands() -> list[str]:
    """All commands of the table, groups by their members."""
    names = []
    for command in COMMANDS:
        module = import_module(command.home.partition(":")[0])
        members = getattr(module, "COMMANDS", None)
        names += [command.name] if members is None else [f"{command.name} {member}" for member in members]
    return names


def about_runs() -> list[str]:
    """Those that take a run, by the words of the issue."""
    return [name for name in commands() if name in WORDS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of their own: a proof writes beside them."""
    return make_runs(tmp_path_factory.mktemp("addressed"))


def _addresses(name: str, folder: Path) -> list[str]:
    return [*ADDRESSES[:3]] if name in DEAR else [*ADDRESSES, str(folder / "runs/slow")]


def said(name: str, address: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and output of a command, without what varies."""
    shutil.rmtree("exported", ignore_errors=True)
    words = [word.replace("RUN", address) for word in WORDS[name]]
    code = main([*name.split(), *words])
    captured = capsys.readouterr()
    out = captured.out.replace(f"{Path.cwd()}/runs/", "")
    lines = [VARYING.sub("", line).rstrip() for line in out.splitlines()]
    assert "Traceback" not in captured.err
    return code, "\n".join(lines) if code == 0 else captured.err


def test_every_command_whose_help_speaks_of_a_run_is_walked(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: a new command about runs cannot be forgotten. Method: the help of every command of the table."""
    missing = []
    for name in commands():
        if name == "run":
            continue
        assert main([*name.split(), "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        if re.search(r"run:DIR|directory of a run|run: and a run", text, re.IGNORECASE):
            missing += [name] * (
                name not in WORDS and name not in ELSEWHERE and not name.startswith("checkpoint ")
            )
    assert missing == []


@pytest.mark.parametrize("name", about_runs())
def test_a_command_says_the_same_whatever_way_a_run_is_written(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: one address. Method: the real command with each way to write it, from the folder above ``runs/``."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PENSTOCK_HOME", str(folder / "home"))
    answers = {address: said(name, address, capsys) for address in _addresses(name, folder)}

    assert {code for code, _ in answers.values()} == {0}, answers
    assert len({text for _, text in answers.values()}) == 1, answers


@pytest.mark.parametrize("name", about_runs())
def test_a_directory_that_is_no_run_and_a_name_that_is_none_are_refused(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PENSTOCK_HOME", str(folder / "home"))
    for address in ("run:empty", "run:nowhere"):
        code, words = said(name, address, capsys)
        assert (address, code) == (address, 2)
        assert "there is no" in words
