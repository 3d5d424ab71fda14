"""What the documents show is run: Python blocks, command lines and examples."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
JOB_FILES = sorted((ROOT / "examples/jobs").glob("*.toml"))
#: Examples whose peers are run without the rest of their packages.
ALONE = {"coming_from_megatron.py", "coming_from_mosaic.py", "coming_from_tensorboard.py"}
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A block that is an example's file: mkdocs puts it there, and it is run as an example.
_INCLUDED = re.compile(r'^``` \{\.python\}\n--8<-- "examples/(.*)"\n```$', re.MULTILINE)
_TIMEOUT_S = 300


def run(command: list[str], cwd: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PENSTOCK_HOME": str(cwd),
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def reader_files(folder: Path) -> None:
    """What a reader of the README has already: raw files, a tokenizer and a script."""
    (folder / "raw").mkdir()
    for part in range(3):
        rows = [json.dumps({"text": f"document {n} of part {part} " * 9}) for n in range(400)]
        (folder / f"raw/{part}.jsonl").write_text("\n".join(rows) + "\n")
    words = Tokenizer(models.WordLevel({"?": 0, "document": 1, "of": 2, "part": 3}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))
    (folder / "train.py").write_text('import os\n\nprint("rank", os.environ["RANK"])\n')


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_the_page_shows_works(page: Path, tmp_path: Path) -> None:
    """The Python blocks of a page are one program; its command lines run after it in the same directory."""
    if page.name == "README.md":
        reader_files(tmp_path)
    blocks = _BLOCK.findall(page.read_text())
    program = "\n".join(text for language, text in blocks if language == "python")
    if program:
        run([sys.executable, "-c", program], tmp_path)
    for language, text in blocks:
        if language == "console":
            for line in text.splitlines():
                if line.startswith("$ "):
                    run(["bash", "-c", line.removeprefix("$ ")], tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    alone = ["-W", "ignore", "-m", "tests.docs.alone"] if example.name in ALONE else []
    run([sys.executable, *alone, str(example)], tmp_path)


@pytest.mark.parametrize("file", JOB_FILES, ids=lambda file: file.name)
def test_the_job_file_runs(file: Path, tmp_path: Path) -> None:
    run(["penstock", "run", "--file", str(file)], tmp_path)


def test_every_way_from_a_peer_has_its_page_and_its_example_is_short() -> None:
    """Goal: a page shows the very file that is run, and it can be read at one sight."""
    pages = sorted((ROOT / "docs/guide/coming-from").glob("*.md"))
    shown = [name for page in pages for name in _INCLUDED.findall(page.read_text())]
    assert shown == [f"coming_from_{page.stem}.py" for page in pages]
    assert sorted(shown) == [example.name for example in EXAMPLES if example.name.startswith("coming_from_")]
    assert [name for name in shown if len((ROOT / "examples" / name).read_text().splitlines()) > 60] == []


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    mkdocs = Path(sys.executable).with_name("mkdocs")
    run(
        [
            str(mkdocs),
            "build",
            "--strict",
            "--quiet",
            "-f",
            str(ROOT / "mkdocs.yml"),
            "-d",
            str(tmp_path / "site"),
        ],
        tmp_path,
    )
    assert (tmp_path / "site/index.html").exists()


def test_the_readme_is_read_in_two_minutes() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 100] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")]
    assert [page for page in pages if page not in navigation] == []
