"""Parts of steps without the time in which a compiler was at work: that is an account of its own, and no part is slow because of it."""

from collections.abc import Sequence

import numpy as np

from penstock.observe.steps.compile_file import CompileSpan, stretches_of
from penstock.report.accounts.timeline import UNMEASURED, RankTimeline, Times
from penstock.report.diagnosis.observation import RankSteps

#: Where a compiler is called from, most likely first.
_AROUND = ("host.forward", "host.backward", "host.user", "host.eval", "host.rest")


def less_compiling(rank: RankSteps, spans: Sequence[CompileSpan]) -> RankSteps:
    """The same steps; what was compiled in a step is taken from the parts that can have been around it."""
    if not any(span.rank == rank.rank for span in spans):
        return rank
    columns = dict(rank.columns)
    begins, ends, lives = columns["begin"], columns["end"], columns["life"]
    inside = np.zeros(len(begins), np.int64)
    for life in {span.life for span in spans if span.rank == rank.rank}:
        own = stretches_of(span for span in spans if (span.life, span.rank) == (life, rank.rank))
        stretches = np.array(own, np.int64)
        is_own = lives == life
        inside[is_own] = _until(ends[is_own], stretches) - _until(begins[is_own], stretches)
    for name in _AROUND:
        column = columns.get(name)
        if column is not None and inside.any():
            columns[name], inside = _taken(column, inside)
    return RankSteps(rank.rank, columns)


def compiles_inside(
    timelines: Sequence[RankTimeline], spans: Sequence[CompileSpan]
) -> tuple[CompileSpan, ...]:
    """Those that lie inside of their life. Notes of a compiler are of the wall clock: where that was set meanwhile, they are in no step."""
    lives = {(life.number, rank.rank): (life.first, life.last) for rank in timelines for life in rank.lives}
    nowhere = (0, -1)
    return tuple(
        span
        for span in spans
        if lives.get((span.life, span.rank), nowhere)[0] <= span.begin
        and span.end <= lives.get((span.life, span.rank), nowhere)[1]
    )


def _until(moments: Times, stretches: Times) -> Times:
    """How long was compiled up to each moment, of stretches in order that do not touch."""
    begins, ends = stretches[:, 0], stretches[:, 1]
    sums = np.concatenate([[0], np.cumsum(ends - begins)])
    begun = np.searchsorted(begins, moments, side="right")
    # The last one that has begun may still go on.
    to_come = np.where(begun > 0, np.maximum(ends[np.maximum(begun - 1, 0)] - moments, 0), 0)
    return np.asarray(sums[begun] - to_come)


def _taken(column: Times, inside: Times) -> tuple[Times, Times]:
    """A column less as much of it as was compiled, and what is left to take elsewhere."""
    taken = np.where(column == UNMEASURED, 0, np.minimum(column, inside))
    return np.asarray(column - taken), np.asarray(inside - taken)
