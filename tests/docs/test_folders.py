"""The transcripts of docs/guide/data.md are what the command says about the very folders that tests/registry/folders.py makes."""

import re
import shlex
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.registry import folders

PAGE = Path(__file__).parents[2] / "docs/guide/data.md"
_TRANSCRIPT = re.compile(r"^<!-- folder: (\w+) -->\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TRANSCRIPTS = dict(_TRANSCRIPT.findall(PAGE.read_text()))


@pytest.mark.parametrize(
    "folder", ["hub_snapshot", "spark_output", "rsynced_tree", "markdown_folder", "mixed_folder"]
)
def test_a_transcript_is_what_the_command_says(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    getattr(folders, folder)(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_REGISTRY", str(tmp_path / "registry"))
    monkeypatch.setenv("COLUMNS", "1000")
    said = ""
    for line in _TRANSCRIPTS[folder].splitlines():
        if line.startswith("$ penstock "):
            capsys.readouterr()
            main(shlex.split(line.removeprefix("$ penstock ")))
            captured = capsys.readouterr()
            said += f"{line}\n{captured.out}{captured.err}"
    assert plain(said.replace(f"{tmp_path}/", "")) == plain(_TRANSCRIPTS[folder])


def plain(text: str) -> list[str]:
    """Without sizes and digests, which change with the releases of the libraries that write the files, and empty lines."""
    text = re.sub(r"b3:[0-9a-f]+…?", "b3:…", text)
    text = re.sub(r"[0-9.]+ K?B in", "… in", text)
    return [line for line in text.splitlines() if line.strip()]
