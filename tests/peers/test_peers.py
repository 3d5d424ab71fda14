"""Files as peers write them give the rows that the peers' own readers give; where they differ, docs/spec/formats/peers.md says why.

A new release of a peer that writes something else is noticed here.
"""

import re
from pathlib import Path

import pytest

from penstock.formats import FORMATS
from penstock.registry import Registry
from tests.formats.damage import same
from tests.peers import columnar, lines, records
from tests.peers.case import Case

CASES = [*lines.CASES, *columnar.CASES, *records.CASES]
_ROW = re.compile(r"^\| (\S+) \| (\S+) \| (.+?) \| (.+?) \|$")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
# Readers of peers leave files to the garbage collector.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::ResourceWarning",
    "ignore::DeprecationWarning",
    "ignore::UserWarning",
)
def test_rows_are_those_of_the_peer(tmp_path: Path, case: Case) -> None:
    path = case.write(tmp_path)
    theirs = case.read(path)
    version = Registry(tmp_path / "registry").register("a", path, policy=case.policy)
    assert version.manifest.format == case.format
    rows = list(version)
    if case.differs:
        assert not same(rows, theirs), "nothing differs: the table may say so"
    expected = [case.ours(row) for row in theirs]
    if case.format == "text":
        expected = [row for row in expected if row["text"]]
    assert same(rows, expected)


def test_the_table_says_what_is_tested(root: Path) -> None:
    table = (root / "docs/spec/formats/peers.md").read_text().splitlines()
    written = [tuple(match.groups()) for line in table if (match := _ROW.match(line))][1:]
    tested = [
        (f"[{case.format}]({_page(case.format)})", case.peer, case.content, case.verdict) for case in CASES
    ]
    assert written == sorted(
        tested, key=lambda row: (list(FORMATS).index(row[0][1:].partition("]")[0]), row[1:])
    )


def _page(format_name: str) -> str:
    pages = {
        "csv": "delimited",
        "tsv": "delimited",
        "npy": "arrays",
        "npz": "arrays",
        "safetensors": "arrays",
    }
    return f"{pages.get(format_name, format_name)}.md"


def test_every_format_of_others_has_a_peer() -> None:
    """``tokens`` and folders of media are written by nobody else."""
    assert {case.format for case in CASES} == set(FORMATS) - {"tokens", "files"}
