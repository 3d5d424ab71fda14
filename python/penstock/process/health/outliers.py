"""Which of many equal hosts are not like the others: median, and median of deviations (MAD). Pure.

A host is an outlier when it is worse than the median both by a share that matters and by many deviations. The share keeps hosts that differ by
1 % from being called slow because the others differ by 0.1 %; the deviations keep noisy figures from naming anybody. Distances are those of
logarithms: a host a hundred times slower than others that differ by half is far from them, which it could never be on a scale that ends at zero.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal

#: With fewer hosts there are figures and no verdict: two that are slow would be the median of four.
HOSTS_MIN = 5
#: What makes the MAD of a normal distribution its standard deviation.
SIGMA = 1.4826
DEVIATIONS_MIN = 5.0
#: Figures that agree better than this are not taken for more exact than they are.
NOISE = 0.01
#: Of ratios that are shown.
LOG_MAX = 20.0

Better = Literal["high", "low"]


@dataclass(frozen=True, slots=True)
class Outlier:
    """A host whose figure is worse than those of the others."""

    value: float
    median: float
    #: The worse figure over the better one: how many times slower it is.
    ratio: float
    #: Its distance from the median in deviations; infinite where all others are equal.
    deviations: float


def outliers(values: Mapping[str, float], *, better: Better, ratio_min: float) -> dict[str, Outlier]:
    """Hosts that are worse than the median by ``ratio_min`` and by many deviations; nobody among fewer than five."""
    known = {host: value for host, value in values.items() if math.isfinite(value) and value >= 0}
    if len(known) < HOSTS_MIN:
        return {}
    middle = median(known.values())
    if middle <= 0:
        return {}
    distances = {host: _distance(value, middle) for host, value in known.items()}
    spread = max(SIGMA * median(map(abs, distances.values())), math.log1p(NOISE))
    named = {}
    for host, distance in distances.items():
        worse_by = -distance if better == "high" else distance
        if worse_by >= math.log(ratio_min) and worse_by >= DEVIATIONS_MIN * spread:
            ratio = math.exp(min(worse_by, LOG_MAX))
            named[host] = Outlier(known[host], middle, ratio, worse_by / spread)
    return named


def _distance(value: float, middle: float) -> float:
    return math.log(value / middle) if value > 0 else -math.inf
