"""Programs and habits of people under `torchrun` and `penstock run`: the page is current, differences are explained, a sample is run."""

from pathlib import Path

import pytest

from tests.launchers.habit_page import PAGE, read, render
from tests.launchers.habits import HABITS, Habit, outcome

#: Without a framework and without long pauses; `python -m benchmarks habits` runs all of them, under both launchers.
SAMPLE = tuple(habit for habit in HABITS if not habit.is_heavy and " s " not in habit.name)


def test_the_page_has_every_habit_and_explains_every_difference() -> None:
    text = PAGE.read_text()
    assert list(read(text)) == [habit.name for habit in HABITS]
    assert render(read(text)) == text, "run `python -m benchmarks habits`"
    assert "**unexplained**" not in text


@pytest.mark.parametrize("habit", SAMPLE, ids=lambda habit: habit.name)
def test_a_sample_under_penstock_ends_as_the_page_says(habit: Habit, tmp_path: Path) -> None:
    assert outcome(habit, "penstock run", tmp_path) == read(PAGE.read_text())[habit.name]["penstock run"]


def test_one_under_torchrun_ends_as_the_page_says(tmp_path: Path) -> None:
    """One is enough to know that the other column is about the torchrun that is installed."""
    (habit,) = (candidate for candidate in HABITS if "nohup" in candidate.name)
    assert outcome(habit, "torchrun", tmp_path) == read(PAGE.read_text())[habit.name]["torchrun"]
