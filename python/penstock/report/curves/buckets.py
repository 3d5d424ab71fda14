"""Steps thinned to buckets. Each keeps its smallest and its largest value, so that a spike of one step is seen among a million."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.report.accounts.timeline import Times

Values = NDArray[np.float64]
#: Of a curve: more than the pixels that it is drawn on. Up to so many steps nothing is thinned.
BUCKETS_MAX = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Bucketed:
    """Values by bucket; NaN where a bucket has none."""

    low: Values
    high: Values
    total: Values
    count: Values

    @property
    def mean(self) -> Values:
        """Of all values of a bucket."""
        return np.divide(self.total, self.count, out=np.full_like(self.total, np.nan), where=self.count > 0)


def edges_of(first: int, end: int, buckets_max: int = BUCKETS_MAX) -> Times:
    """Where buckets of equal width begin, and where the last one ends; one step each where there is room for all."""
    span = max(end - first, 0)
    count = min(span, buckets_max)
    if count == 0:
        return np.array([first], np.int64)
    return np.asarray(first + np.arange(count + 1, dtype=np.int64) * span // count)


def bucketed(steps: Times, values: Values, edges: Times) -> Bucketed:
    """Values of steps in ascending order; what is not finite is in no bucket."""
    count = len(edges) - 1
    keep = np.isfinite(values) & (steps >= edges[0]) & (steps < edges[-1])
    places = np.searchsorted(edges, steps[keep], side="right") - 1
    low, high = np.full(count, np.nan), np.full(count, np.nan)
    total, counts = np.zeros(count), np.zeros(count)
    if len(places):
        starts = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))
        filled, kept = places[starts], values[keep]
        low[filled], high[filled] = np.minimum.reduceat(kept, starts), np.maximum.reduceat(kept, starts)
        total[filled] = np.add.reduceat(kept, starts)
        counts[filled] = np.diff(np.append(starts, len(kept)))
    return Bucketed(low, high, total, counts)


def plain(values: Values) -> list[float | None]:
    """For JSON, which has no NaN."""
    return [None if value != value else value for value in values.tolist()]
