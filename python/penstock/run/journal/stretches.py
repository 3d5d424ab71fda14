"""Stretches: steps one after another that were executed by the same program on the same layout. Pure: from journal and records.

Lives that differ only in what made them end belong to one stretch, so an interruption inside of a stretch is not repeated when its steps
are executed again; another number of ranks, another recipe or another command line begins a new one, and is repeated at the same step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.run.journal.journal import Entry
from penstock.run.journal.step_records import Whole

#: Facts of a start that make a life another program.
_SAME = ("ranks", "lanes", "recipe", "seed", "command", "directory", "launcher")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps one after another that one program executed on one layout."""

    first: int
    #: After the last.
    stop: int
    #: Of the start of its first life.
    facts: Mapping[str, Any]
    #: Its lives.
    lives: tuple[int, ...]


def stretches(steps: Mapping[int, Whole], entries: Iterable[Entry]) -> list[Stretch]:
    """Of all recorded steps, in order. Empty if nothing says how the lives began."""
    starts = {entry.incarnation: entry.facts for entry in entries if entry.kind == "start"}
    parts: list[Stretch] = []
    for step, whole in sorted(steps.items()):
        facts = starts.get(whole.incarnation)
        if facts is None:
            return []
        if parts and all(parts[-1].facts.get(name) == facts.get(name) for name in _SAME):
            last = parts[-1]
            lives = last.lives if whole.incarnation in last.lives else (*last.lives, whole.incarnation)
            parts[-1] = Stretch(last.first, step + 1, last.facts, lives)
        else:
            if parts:
                parts[-1] = Stretch(parts[-1].first, step, parts[-1].facts, parts[-1].lives)
            parts.append(Stretch(step, step + 1, facts, (whole.incarnation,)))
    return parts


def between(known: Iterable[Stretch], first: int, stop: int) -> list[Stretch]:
    """The parts of stretches that lie in a range of steps."""
    cut = [Stretch(max(s.first, first), min(s.stop, stop), s.facts, s.lives) for s in known]
    return [part for part in cut if part.first < part.stop]
