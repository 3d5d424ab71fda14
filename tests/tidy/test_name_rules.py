"""The rules about names hold for our code, and each notices what it is for."""

from pathlib import Path

import pytest

from tests.tidy import name_rules

pytestmark = pytest.mark.gate


def test_our_names_keep_the_rules(root: Path) -> None:
    assert name_rules.complaints(root) == []


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"data/a/plan.py": "", "data/b/plan.py": ""}, "two of floor data have a file called plan"),
        ({"data/a/x.py": "class Plan: ...", "data/y.py": "class Plan: ..."}, "have a type called Plan"),
        ({"data/x.py": "from typing import Any\ndef f(**more: Any): ..."}, "hide what may be given"),
        ({"data/x.py": "def f(about: tuple[int, int]): ..."}, "a tuple called about"),
        ({"data/x.py": "found = 1\n" * (name_rules.VAGUE_MAX + 1)}, "name what they hold"),
    ],
)
def test_a_planted_violation_is_named(tmp_path: Path, files: dict[str, str], complaint: str) -> None:
    for name, text in files.items():
        path = tmp_path / "python/penstock" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    (message,) = name_rules.complaints(tmp_path)

    assert complaint in message


def test_what_is_called_alike_on_other_floors_or_by_one_protocol_is_no_double(tmp_path: Path) -> None:
    for name in ("data/plan.py", "state/plan.py", "cli/data/list.py", "cli/runs/list.py"):
        path = tmp_path / "python/penstock" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("class Plan: ..." if "plan" in name else "")
    assert name_rules.complaints(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text", "has_home"),
    [
        ("test_plan", "", True),
        ("test_plans", "", True),
        ("test_batch_source", "", True),
        ("test_plan_and_more", "", True),
        ("test_weather", "", False),
        ("test_weather", '"""D1 when it rains."""', True),
    ],
)
def test_a_test_is_called_like_something_or_cites_an_invariant(
    tmp_path: Path, name: str, text: str, has_home: bool
) -> None:
    (tmp_path / "python/penstock/data").mkdir(parents=True)
    (tmp_path / "python/penstock/data/plan.py").write_text("class BatchSource: ...")
    (tmp_path / "tests/data").mkdir(parents=True)
    (tmp_path / f"tests/data/{name}.py").write_text(text)
    assert (name_rules.complaints(tmp_path) == []) == has_home
