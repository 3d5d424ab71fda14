"""Programs and habits of people under `torchrun` and under `penstock run`; writes `docs/reference/habits.md`.

A row is 1 where the outcomes are the same or their difference is explained on the page, 0 where it is not; the note has both outcomes.
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.launchers.habit_page import PAGE, Outcomes, render
from tests.launchers.habits import HABITS, LAUNCHERS, Habit, Launcher, outcome

from benchmarks.table import Table

#: Most of the time of a habit is waiting.
AT_ONCE = 3


def run() -> Table:
    """Every program under both launchers."""
    table = Table(
        "the same outcome under both launchers, or a difference that is explained",
        "of 1",
        smaller_is_better=False,
    )
    cells = [(habit, launcher) for habit in HABITS for launcher in LAUNCHERS]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        places = [Path(folder) / str(number) for number in range(len(cells))]
        texts = list(pool.map(_cell, cells, places))
    outcomes: Outcomes = {habit.name: {} for habit in HABITS}
    for (habit, launcher), text in zip(cells, texts, strict=True):
        outcomes[habit.name][launcher] = text
    for habit in HABITS:
        by_launcher = outcomes[habit.name]
        same = len(set(by_launcher.values())) == 1
        note = by_launcher["torchrun"] if same else " <> ".join(by_launcher.values())
        table.add(habit.name, float(same or bool(habit.why)), note)
    PAGE.write_text(render(outcomes))
    return table


def _cell(cell: tuple[Habit, Launcher], place: Path) -> str:
    habit, launcher = cell
    try:
        text = outcome(habit, launcher, place)
    except AssertionError as problem:
        text = f"did not begin: {problem}"
    print(f"{habit.name}, {launcher}: {text}", flush=True)
    return text
