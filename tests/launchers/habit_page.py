"""The page of habits: outcomes under both launchers side by side, written by `python -m benchmarks habits` and read back by its test."""

from pathlib import Path

from tests.launchers.habits import HABITS, LAUNCHERS, Launcher

PAGE = Path(__file__).parents[2] / "docs/reference/habits.md"
Outcomes = dict[str, dict[Launcher, str]]
_HEAD = """# Programs and habits, under torchrun and under `penstock run`

The same small programs, started by both launchers with two ranks, and the same hands: what a person does meanwhile is
part of the row. An outcome says what ranks wrote down, how the launcher ended, and whether a process outlived it by a
second. `python -m benchmarks habits` runs all of it and writes this page; a sample runs with the tests.

| program and habit | torchrun | `penstock run` | difference |
|---|---|---|---|
"""


def render(outcomes: Outcomes) -> str:
    """The page."""
    return _HEAD + "".join(
        f"| {habit.name} | {outcomes[habit.name]['torchrun']} | {outcomes[habit.name]['penstock run']} | {_difference(outcomes[habit.name], habit.why)} |\n"
        for habit in HABITS
    )


def _difference(by_launcher: dict[Launcher, str], why: str) -> str:
    return "none" if len(set(by_launcher.values())) == 1 else why or "**unexplained**"


def read(page: str) -> Outcomes:
    """The outcomes that a page has."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    return {row[0]: dict(zip(LAUNCHERS, row[1:3], strict=True)) for row in rows}
