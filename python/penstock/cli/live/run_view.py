"""What ``penstock top`` knows of a run at one moment, and which part of it the person wants to see."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.report.curves.live_screen import LiveScreen
from penstock.report.curves.run_screen import RunScreen
from penstock.report.curves.step_table import STEP_TIME
from penstock.view.address import RunAddress
from penstock.view.model.run_summary import condition_of, is_running, summary_of
from penstock.view.wire.run_answers import RunSummary

#: What a key does; sequences of arrows first.
_KEYS = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"k": "up",
    b"j": "down",
    b"l": "right",
    b"h": "left",
    b"\t": "right",
    b"c": "right",
    b"m": "map",
    b"o": "over",
}


@dataclass(frozen=True)
class RunView:
    """One run."""

    address: str
    summary: RunSummary | None = None
    screen: RunScreen | None = None
    #: Why it could not be read just now; what was known before stays.
    problem: str = ""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.summary["name"] if self.summary is not None else Path(self.address).name

    @property
    def is_running(self) -> bool:
        """Whether a process of it is there."""
        return self.summary is not None and self.summary["state"] == "running"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        known: dict[str, Any] = {"address": self.address} if self.summary is None else {**self.summary}
        return {**known, "problem": self.problem} if self.problem else known


class WatchedRun:
    """Looks at a run again and again."""

    def __init__(self, path: Path) -> None:
        self._live = LiveScreen(path)
        self._view = RunView(str(RunAddress(os.fspath(path))))

    def look(self) -> RunView:
        """What is known now. A run that cannot be read any more keeps what was known, and says why."""
        try:
            running = is_running(self._live.path)
            # How it ended is said once, and nothing comes after that.
            screen = self._live.look(at_once=self._view.is_running and not running)
            if screen is not self._view.screen:
                began = time.monotonic()
                self._view = replace(
                    self._view, summary=summary_of(screen, self._view.address), screen=screen, problem=""
                )
                self._live.spend(time.monotonic() - began)
            self._see_state(screen, running=running)
        except (PenstockError, OSError) as problem:
            self._view = replace(self._view, problem=str(problem))
        return self._view

    def _see_state(self, screen: RunScreen, *, running: bool) -> None:
        """Whether it runs is seen from its processes: one that was killed writes nothing more."""
        summary = self._view.summary
        state = condition_of(screen, running=running)
        if summary is not None and summary["state"] != state:
            self._view = replace(self._view, summary={**summary, "state": state})


@dataclass(frozen=True, slots=True)
class RunChoice:
    """What is shown: changed by keys."""

    run: int = 0
    #: The curve that comes first, and the column of the map, by name; empty until one was chosen.
    curve: str = ""
    column: str = STEP_TIME
    #: Whether the curves of all runs are drawn over each other.
    over: bool = True

    def pressed(self, keys: bytes, views: Sequence[RunView]) -> "RunChoice":
        """What is shown after some keys."""
        choice = self
        rest = keys
        while rest:
            sign = next((sign for sign in _KEYS if rest.startswith(sign)), rest[:1])
            rest = rest[len(sign) :]
            choice = choice._after(_KEYS.get(sign, sign.decode("latin-1")), views)
        return choice

    def _after(self, word: str, views: Sequence[RunView]) -> "RunChoice":
        if word in ("up", "down"):
            return replace(self, run=(self.run + (1 if word == "down" else -1)) % len(views))
        if word.isdecimal() and 1 <= int(word) <= len(views):
            return replace(self, run=int(word) - 1)
        if word in ("left", "right"):
            return replace(self, curve=_next(curve_names(views), self.curve, 1 if word == "right" else -1))
        if word == "map":
            screen = views[self.run].screen
            return replace(self, column=_next([] if screen is None else screen.steps.names, self.column, 1))
        return replace(self, over=not self.over) if word == "over" else self


def curve_names(views: Sequence[RunView]) -> list[str]:
    """Curves of any of the runs, in the order of the first that has them."""
    names: dict[str, None] = {}
    for view in views:
        if view.screen is not None:
            names.update(dict.fromkeys(curve.name for curve in view.screen.curves.curves))
    return list(names)


def _next(names: Sequence[str], name: str, by: int) -> str:
    if not names:
        return name
    place = names.index(name) if name in names else 0
    return names[(place + by) % len(names)]
