"""The rules about prose hold for our pages and docstrings, and each notices what it is for."""

from pathlib import Path

import pytest

from tests.tidy import prose_rules

pytestmark = pytest.mark.gate


def test_our_prose_keeps_the_rules(root: Path) -> None:
    assert prose_rules.complaints(root) == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("docs/guide/long.md", "word " * 25, "125 characters, at most 120"),
        ("docs/guide/long.md", "- a list\n  " + "word " * 24, "122 characters, at most 120"),
        ("docs/guide/long.md", "```text\ncode\n```\n" + "word " * 25, "125 characters, at most 120"),
        ("ARCHITECTURE.md", "word " * 25, "125 characters, at most 120"),
        ("docs/decisions/a.md", "By `slots/turned.rs`.", "`slots/turned.rs` leads nowhere"),
        ("docs/decisions/a.md", "By `python/penstock/turned.py`.", "turned.py` leads nowhere"),
        ("README.md", "word " * 21, "105 characters, at most 100"),
        ("python/penstock/a.py", f'"""{prose_rules.EVASION}."""\n', "say what it is"),
        ("crates/penstock-x/src/lib.rs", f"//! X.\n/// {prose_rules.EVASION}.\n", "say what it is"),
        (
            "python/penstock/a.py",
            '"""A."""\nraise ValueError(f"{x} makes no sense")\n',
            "say what is expected",
        ),
        ("python/penstock/a.py", '"""A."""\nraise ValueError(f"{x} is no step")\n', "say what is expected"),
        ("python/penstock/a.py", '"""See ``turned.py``."""\n', "``turned.py`` leads nowhere"),
        ("python/penstock/a.py", '"""As ``data/a.py`` has it."""\n', "``data/a.py`` leads nowhere"),
        ("python/penstock/a.py", '"""See ``penstock.b``."""\n', "``penstock.b`` leads nowhere"),
        ("python/penstock/a.py", '"""See ``penstock.a.turn``."""\n', "``penstock.a.turn`` leads nowhere"),
        (
            "python/penstock/a.py",
            '"""A."""\ndef f():\n    """Raises ``TooLate``."""\n',
            "``TooLate`` leads nowhere",
        ),
        (
            "python/penstock/a.py",
            '"""By ``Clock.tick``."""\nclass Clock: ...\n',
            "``Clock.tick`` leads nowhere",
        ),
    ],
)
def test_a_planted_violation_is_named(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)

    (message,) = prose_rules.complaints(tmp_path)

    assert message.startswith(f"{name}:")
    assert complaint in message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("python/penstock/a.py", '"""A."""\nraise ValueError(f"there is no row {x}")\n'),
        ("docs/guide/theirs.md", "As `convert_dataset_hf.py` of LLM Foundry does."),
        ("docs/guide/wide.md", "| a table |" + " cell |" * 30),
        ("docs/guide/wide.md", "```text\n" + "word " * 30 + "\n```\n"),
        ("docs/guide/wide.md", "https://example.org/" + "x" * 120),
        (
            "python/penstock/a.py",
            '"""``a.py``, ``penstock.a``, ``penstock.a.f``, ``Clock.tick``, ``tick()``, ``x = 1``."""\nclass Clock:\n    def tick(self): ...\ndef f(): ...\n',
        ),
    ],
)
def test_what_has_to_be_so_is_no_violation(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)

    assert prose_rules.complaints(tmp_path) == []
