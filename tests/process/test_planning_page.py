"""The page that answers how many spares a job needs: its commands run, and what it shows is what they say."""

import re
import shlex
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.conftest import ROOT

PAGE = (ROOT / "docs/guide/planning.md").read_text()
_BLOCK = re.compile(r"^```(sh|console|text|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = _BLOCK.findall(PAGE)
#: Whole lives of 2,048 hosts are for the benchmarks; a short one meets every option.
SHORT = ("--seeds", "1", "--for", "1d")


def _commands(language: str) -> list[str]:
    text = "\n".join(text for kind, text in BLOCKS if kind == language).replace("\\\n", " ")
    lines = [line.removeprefix("$ ").strip() for line in text.splitlines()]
    return [" ".join(line.split()) for line in lines if line.startswith("penstock simulate")]


@pytest.mark.parametrize("command", _commands("sh"))
def test_every_command_of_the_page_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    if "--for" in words:
        place = words.index("--for")
        del words[place : place + 2]

    assert main([*words, *SHORT]) == 0

    assert "useful" in capsys.readouterr().out


def test_the_first_table_of_the_page_is_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: nobody reads figures of an older simulator. Method: the same seeds have the same lives on any machine."""
    (command,) = _commands("console")
    shown = next(text for kind, text in BLOCKS if kind == "text")

    assert main(shlex.split(command)[1:]) == 0

    said = capsys.readouterr().out
    assert [line.rstrip() for line in said.splitlines()] == shown.splitlines()


def test_the_profile_of_the_page_is_complete(tmp_path: Path) -> None:
    from penstock.process.simulation import read_profile

    (profile,) = (text for kind, text in BLOCKS if kind == "toml")
    (tmp_path / "mine.toml").write_text(profile)

    causes = {cause.name: cause.loses for cause in read_profile(str(tmp_path / "mine.toml")).causes}
    assert causes == {"GPU fell off the bus": "rank", "power of a rack": "rack"}
