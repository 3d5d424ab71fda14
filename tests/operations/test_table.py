"""Every row of the table in docs/operations.md is a test here, and every test here is a row."""

import re
from pathlib import Path


def test_rows_and_tests_are_the_same(root: Path) -> None:
    table = (root / "docs/operations.md").read_text()
    promised = {line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")}
    written = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    tested = set(re.findall(r'^@row\("(.+)"\)$', written, re.MULTILINE))
    assert promised - {"fault"} == tested
