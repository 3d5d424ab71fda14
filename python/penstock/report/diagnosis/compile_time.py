"""Parts of steps without the time in which a compiler was at work: that is an account of its own, and no part is slow because of it."""

from collections.abc import Sequence

import numpy as np

from penstock.observe.steps.compile_file import CompileSpan, stretches_of
from penstock.report.accounts.timeline import UNMEASURED, Times
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
        own = [span for span in spans if (span.life, span.rank) == (life, rank.rank)]
        for begin, end in stretches_of(own):
            overlap = np.minimum(ends, end) - np.maximum(begins, begin)
            inside += np.where((lives == life) & (overlap > 0), overlap, 0)
    for name in _AROUND:
        column = columns.get(name)
        if column is not None and inside.any():
            columns[name], inside = _taken(column, inside)
    return RankSteps(rank.rank, columns)


def _taken(column: Times, inside: Times) -> tuple[Times, Times]:
    """A column less as much of it as was compiled, and what is left to take elsewhere."""
    taken = np.where(column == UNMEASURED, 0, np.minimum(column, inside))
    return np.asarray(column - taken), np.asarray(inside - taken)
