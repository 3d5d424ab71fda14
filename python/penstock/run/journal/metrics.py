"""Metrics: named numbers that the program logs, such as the loss of an evaluation; a line each in ``metrics/LIFE-RANK.jsonl``.

A value may still be on a device when it is logged; it is looked at when the next step ends. What was logged since the last save is committed with the next
one, where ``Keep(best=…)`` finds it: the value and the state belong together.
"""

import math
import os
import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import RunDamaged, UsageError
from penstock.run.journal.append_file import AppendFile
from penstock.state.save.capture import numbers_of

FOLDER = "metrics"
_NAME = re.compile(r"(\d{6})-(\d{4,})\.jsonl")


class Logged(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line."""

    #: Seconds since 1970.
    at: float
    #: During which it was logged. Without values: training went on from it, so what was logged of it and later ones counts no more.
    step: int
    values: dict[str, float | None] = {}
    incarnation: int = 0
    rank: int = 0


class Metrics:
    """Those of one rank of one life."""

    def __init__(self, directory: Path, incarnation: int, rank: int) -> None:
        self._incarnation, self._rank = incarnation, rank
        self._file = AppendFile(directory / FOLDER / f"{incarnation:06d}-{rank:04d}.jsonl")
        #: Hears what was logged in a step once it was looked at.
        self.seen: Callable[[int, dict[str, float]], None] = _nobody
        #: Logged, and not looked at yet.
        self._coming: deque[tuple[int, float, dict[str, Any]]] = deque()
        #: Looked at since the last save.
        self._since_save: dict[str, float] = {}
        #: From which training went on, until that is written down: with the first values after it.
        self._mark: int | None = None

    def log(self, step: int, values: dict[str, Any]) -> None:
        """Take note of values, which may still be on their way."""
        if not values:
            raise UsageError("there is nothing to log", hint="name what it is: run.log(val_loss=2.31)")
        self._coming.append((step, time.time(), values))

    def look(self, before: int | None = None) -> None:
        """Look at what was logged, and write it down; only of steps before one, whose values are here."""
        while self._coming and (before is None or self._coming[0][0] < before):
            step, at, values = self._coming.popleft()
            seen = numbers_of(values)
            self._since_save |= seen
            self.seen(step, seen)
            lines = [] if self._mark is None else [self._line(at, self._mark, {})]
            self._file.write(b"".join([*lines, self._line(at, step, seen)]))
            self._mark = None

    def take(self) -> dict[str, float]:
        """Everything since the last time, to be committed with a checkpoint."""
        self.look()
        taken, self._since_save = self._since_save, {}
        return {name: value for name, value in taken.items() if math.isfinite(value)}

    def restored(self, step: int) -> None:
        """Training goes on from a step: what was logged of it and of later ones belongs to a past that is undone."""
        self._coming.clear()
        self._since_save.clear()
        self._mark = step

    def _line(self, at: float, step: int, values: dict[str, float]) -> bytes:
        return msgspec.json.encode(Logged(at, step, dict(values), self._incarnation, self._rank)) + b"\n"

    def close(self) -> None:
        """Everything is on the disk."""
        self._file.close()


def _nobody(step: int, values: dict[str, float]) -> None:
    """Nobody listens."""


def ranks_of(directory: str | os.PathLike[str]) -> list[int]:
    """Ranks that have logged something."""
    folder = Path(directory) / FOLDER
    names = [_NAME.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted({int(name[2]) for name in names if name is not None})


def read(directory: str | os.PathLike[str], rank: int = 0) -> list[Logged]:
    """What a rank logged in steps that count, in order."""
    found: list[Logged] = []
    folder = Path(directory) / FOLDER
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = _NAME.fullmatch(path.name)
        if name is None or int(name[2]) != rank:
            continue
        for line in _read_file(path):
            if line.values:
                found.append(line)
            else:
                found = [each for each in found if each.step < line.step]
    return found


def _read_file(path: Path) -> list[Logged]:
    """Without a last line that a kill tore."""
    *whole, _ = path.read_bytes().split(b"\n")
    try:
        return [msgspec.json.decode(line, type=Logged) for line in whole]
    except msgspec.MsgspecError as reason:
        raise RunDamaged(file=str(path), place=0, reason=str(reason)) from reason
