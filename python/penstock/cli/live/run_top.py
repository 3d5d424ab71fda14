"""``penstock top RUN …``: runs live, from their files alone."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.cli.job.keys import Keys, leaves
from penstock.cli.live.run_picture import picture, plain_lines
from penstock.cli.live.run_view import RunChoice, RunView, WatchedRun
from penstock.cli.output import print_json, print_text

#: More than a terminal can tell apart.
RUNS_MAX = 32


def top_runs(places: Sequence[Path], *, every_s: float, once: bool, json: bool) -> int:
    """Show runs until ``q`` is pressed; in a pipe once, as JSON until none of them runs."""
    runs = [WatchedRun(place) for place in places]
    if json:
        return _objects(runs, every_s, once=once)
    if once or not sys.stdout.isatty():
        views = _look(runs)
        for line in plain_lines(views):
            print_text(line)
        return _exit_code(views)
    return _live(runs, every_s)


def _look(runs: Sequence[WatchedRun]) -> list[RunView]:
    return [run.look() for run in runs]


def _exit_code(views: Sequence[RunView]) -> int:
    """1 where a run could not be read at all."""
    return 1 if any(view.summary is None for view in views) else 0


def _objects(runs: Sequence[WatchedRun], every_s: float, *, once: bool) -> int:
    """An object for each refresh."""
    while True:
        views = _look(runs)
        print_json({"at": time.time(), "runs": [view.to_json() for view in views]})
        sys.stdout.flush()
        if once or not any(view.is_running for view in views):
            return _exit_code(views)
        time.sleep(every_s)


def _live(runs: Sequence[WatchedRun], every_s: float) -> int:
    from rich.console import Console, Group
    from rich.live import Live

    console = Console()
    choice = RunChoice()
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            views = _look(runs)
            lines = picture(views, choice, console.size.width, console.size.height)
            for line in lines[:-1]:
                line.end = "\n"
            live.update(Group(*lines), refresh=True)
            if not keys.is_open and not any(view.is_running for view in views):
                # Nobody could press a key.
                break
            pressed = keys.pressed_within(every_s)
            if leaves(pressed):
                break
            choice = choice.pressed(pressed, views)
    for words in plain_lines(views):
        print_text(words)
    return _exit_code(views)
