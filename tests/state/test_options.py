"""Options of saving: keywords and fields are the same, and a number that cannot be is named with what came."""

from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from penstock import Checkpoints
from penstock.errors import UsageError
from penstock.state.save.options import SaveKeywords, SaveOptions


def test_keywords_and_fields_are_the_same() -> None:
    hints = get_type_hints(SaveOptions)
    assert get_type_hints(SaveKeywords) == {field.name: hints[field.name] for field in fields(SaveOptions)}


@pytest.mark.parametrize(
    ("option", "value"), [("captures", 0), ("deadline_s", 0), ("memory_bytes", -1), ("watch_s", 0.0)]
)
def test_a_number_that_cannot_be_is_named(tmp_path: Path, option: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{option} must be positive, got {value}"):
        Checkpoints(tmp_path, **{option: value})  # type: ignore[arg-type]


def test_an_option_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="deadline"):
        Checkpoints(tmp_path, deadline=5)  # type: ignore[call-arg]
