"""The ledger of a long run: a million steps, 8 ranks, 50 lives, twelve parts a step; its time and its memory, beside one sum of every column.

The columns of a rank are made when the ledger asks for them and are dropped afterwards, as rows come from a run; making them is not counted.
"""

import resource
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.table import Table
from penstock.report.accounts.account_names import STEP_PARTS
from penstock.report.accounts.ledger import ledger_from
from penstock.report.accounts.timeline import LifeTimeline, Marks, RankTimeline, StepColumns

STEPS, RANKS, LIVES = 1_000_000, 8, 50
STEP_NS = 60_000_000
#: Steps that every death costs.
AGAIN = 100


def run() -> Table:
    """Measure in one run."""
    table = Table("a million steps, 8 ranks, 50 lives: < 2 s and < 300 MB", "s")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock = _Clock()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    ledger = ledger_from(clock.timelines())
    took = time.perf_counter() - begin - clock.making
    cpu = time.process_time() - begin_cpu - clock.making_cpu
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert all(sum(life.accounts.values()) == life.wall for rank in ledger.ranks for life in rank.lives)
    assert ledger.ranks[0].steps("lost") == AGAIN * (LIVES - 1)
    table.add("one sum of every column", clock.summing)
    table.add("the ledger", took)
    table.rows[
        -1
    ].note = f"{cpu:.2f} s of processor time; memory grew by {grown:.0f} MB, columns of one rank included"
    return table


class _Clock:
    """Makes timelines, and knows how long that took."""

    def __init__(self) -> None:
        self.making = 0.0
        self.making_cpu = 0.0
        self.summing = 0.0

    def timelines(self) -> Iterator[RankTimeline]:
        """One rank after the other."""
        for rank in range(RANKS):
            begin, begin_cpu = time.perf_counter(), time.process_time()
            timeline = rank_timeline(rank)
            before = time.perf_counter()
            for life in timeline.lives:
                for column in life.steps.parts.values():
                    column.sum()
            self.summing += time.perf_counter() - before
            self.making += time.perf_counter() - begin
            self.making_cpu += time.process_time() - begin_cpu
            yield timeline


def rank_timeline(rank: int) -> RankTimeline:
    """Steps of equal length with noise in their parts."""
    chance = np.random.default_rng(rank)
    count = STEPS // LIVES
    lives = []
    at = 0
    for number in range(LIVES):
        first = max(0, number * (count - AGAIN))
        begins = at + 30_000_000_000 + np.arange(count, dtype=np.int64) * STEP_NS
        parts = {
            part: chance.integers(0, STEP_NS // len(STEP_PARTS), count, dtype=np.int64) for part in STEP_PARTS
        }
        steps = StepColumns(np.arange(first, first + count, dtype=np.int64), begins, begins + STEP_NS, parts)
        marks = Marks(begins[:1], np.array([first], np.int64))
        died = int(steps.ends[-1]) + 5_000_000
        lives.append(
            LifeTimeline(
                number=number, born=at, joined=at + 20_000_000_000, resumed=marks, steps=steps, died=died
            )
        )
        at = died + 2_000_000_000
    return RankTimeline(rank, tuple(lives))
