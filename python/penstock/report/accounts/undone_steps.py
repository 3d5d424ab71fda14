"""Which executions of steps do not count, and because of what: training later went on from such a step or an earlier one.

A mark says where training went on. Where none was recorded, a step whose number is not above the one before it stands for its own mark:
it was executed again.

Where rows were thinned, several steps are one sum, which ends at every checkpoint of the run. If training went back into the middle of one all
the same, nothing tells which part of its time counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.report.accounts.timeline import UNMEASURED, LifeTimeline, Marks, StepColumns, Times

#: An execution that counts, and several of which only some do.
COUNTS = -1
CUT = -2


@dataclass(frozen=True, slots=True, eq=False)
class UndoneSteps:
    """Of one rank: for every execution of every life the number of the mark that undid it, ``COUNTS`` or ``CUT``."""

    by_life: list[Times]
    #: The life of every mark, its number there, and whether it stands before the first step of it.
    mark_lives: list[int]
    mark_numbers: list[int]
    is_first: list[bool]
    #: How many steps of a life do not count.
    lost_counts: list[int]


def undone_steps(lives: Sequence[LifeTimeline]) -> UndoneSteps:
    """Compare every step with the marks after it. Linear in steps; marks are few."""
    places: list[Times] = []
    targets: list[Times] = []
    mark_numbers: list[int] = []
    for life in lives:
        place, target, numbers = _marks(life.resumed, life.steps)
        places.append(place)
        targets.append(target)
        mark_numbers += numbers
    all_targets = np.concatenate(targets) if targets else np.empty(0, np.int64)
    mark_lives = [life for life, place in enumerate(places) for _ in range(len(place))]
    is_first = [one == place[0] for place in places for one in place.tolist()]
    by_life, lost_counts = [], []
    passed = 0
    for life, place in zip(lives, places, strict=True):
        undone_by = np.full(len(life.steps.numbers), COUNTS, np.int64)
        kept = life.steps.counts.copy()
        is_whole = life.steps.ends != UNMEASURED
        edges = [0, *place.tolist(), len(undone_by)]
        for segment in range(len(edges) - 1):
            stretch = slice(edges[segment], edges[segment + 1])
            later = all_targets[passed + segment :]
            if len(later) and stretch.stop > stretch.start:
                lowest = np.minimum.accumulate(later)
                firsts = life.steps.firsts[stretch]
                mark = np.searchsorted(-lowest, -firsts, side="left")
                whole = np.where(mark < len(later), mark + passed + segment, COUNTS)
                is_cut = (whole == COUNTS) & (life.steps.numbers[stretch] >= lowest[-1])
                undone_by[stretch] = np.where(is_cut, CUT, whole)
                kept[stretch] = np.clip(lowest[-1] - firsts, 0, kept[stretch])
        by_life.append(undone_by)
        lost_counts.append(int((life.steps.counts - kept)[is_whole].sum()))
        passed += len(place)
    return UndoneSteps(by_life, mark_lives, mark_numbers, is_first, lost_counts)


def _marks(resumed: Marks, steps: StepColumns) -> tuple[Times, Times, list[int]]:
    """Before which execution training went on, from which step, and which mark says so; silent ones are numbered from -1 down."""
    places = np.searchsorted(steps.begins, resumed.times, side="left")
    again = 1 + np.flatnonzero(steps.firsts[1:] <= steps.numbers[:-1])
    if len(steps.numbers):
        again = np.concatenate([[0], again])
    lowest = dict(zip(places.tolist(), resumed.steps.tolist(), strict=True))
    for place, target in zip(places.tolist(), resumed.steps.tolist(), strict=True):
        lowest[place] = min(target, lowest[place])
    is_silent = [
        lowest.get(place, target + 1) > target
        for place, target in zip(again.tolist(), steps.firsts[again].tolist(), strict=True)
    ]
    silent = again[np.array(is_silent, bool)].astype(np.int64)
    all_places = np.concatenate([places, silent]).astype(np.int64)
    all_targets = np.concatenate([resumed.steps, steps.firsts[silent]]).astype(np.int64)
    numbers = np.concatenate([np.arange(len(places)), -1 - np.arange(len(silent))])
    order = np.argsort(all_places, kind="stable")
    return all_places[order], all_targets[order], numbers[order].tolist()
