"""The rules hold for our code, and each rule notices what it is for."""

from pathlib import Path

import pytest

from tests.tidy import rules

pytestmark = pytest.mark.gate


def test_our_code_keeps_the_rules(root: Path) -> None:
    assert rules.complaints(root) == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("python/penstock/utils.py", '"""Things."""\n', "has no concept"),
        ("python/penstock/long.py", '"""Long."""\n' + "x = 1\n" * 600, "601 lines"),
        ("python/penstock/bare.py", "x = 1\n", "module docstring"),
        ("python/penstock/a.py", '"""A."""\ndef f(a, b, c, d, e, f, g, h): ...\n', "8 parameters"),
        ("python/penstock/a.py", '"""A."""\ndef f():\n' + "    x = 1\n" * 71, "f has 71 lines"),
        ("python/penstock/a.py", '"""A."""\nclass DataManager: ...\n', "vague name"),
        ("python/penstock/a.py", '"""A."""\nP = "/' + 'home/someone/data"\n', "particular machine"),
        ("python/penstock/a.py", '"""A."""\n# TO' + "DO later\n", "issue"),
        ("tests/test_a.py", '"""A."""\nimport time\ntime.sleep(1)\n', "a test that sleeps"),
        ("crates/penstock-x/src/lib.rs", "pub fn f() {}\n", "//! header"),
        ("crates/penstock-x/src/lib.rs", "//! X.\nfn f() {\n" + "    g();\n" * 71 + "}\n", "f has 71 lines"),
        ("python/penstock/data/feed/turned.py", '"""A batch."""\n', "not what lives there"),
        ("python/penstock/data/handing.py", '"""A plan."""\n', "not what lives there"),
        ("web/src/helpers.ts", "// Things.\n", "has no concept"),
        ("web/src/page/a.ts", "// A page.\n\nconst REST_MS = 120;\n", "what it is for"),
        ("web/src/page/a.ts", "// A page.\n" + "let x = 1;\n" * 600, "601 lines"),
    ],
)
def test_a_planted_violation_is_named(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text)

    messages = rules.complaints(tmp_path)

    assert len(messages) == 1
    assert messages[0].startswith(name)
    assert complaint in messages[0]


def test_a_hall_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "python/penstock/data"
    folder.mkdir(parents=True)
    for number in range(rules.MODULES_MAX + 1):
        (folder / f"room{number}.py").write_text('"""A room."""\n')
    (folder / "__init__.py").write_text('"""Rooms."""\n')

    assert rules.complaints(tmp_path) == ["python/penstock/data: 16 modules, at most 15: cut it into rooms"]
