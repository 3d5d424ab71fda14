"""Which of many equal hosts are not like the others: median, and median of deviations (MAD). Pure.

A host is an outlier when it is worse than the median both by a share that matters and by many deviations. The share keeps hosts that differ by
1 % from being called slow because the others differ by 0.1 %; the deviations keep noisy figures from naming anybody.
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
    spread = SIGMA * median(abs(value - middle) for value in known.values())
    spread = max(spread, NOISE * middle)
    found = {}
    for host, value in known.items():
        worse_by = middle - value if better == "high" else value - middle
        low, high = sorted((value, middle))
        ratio = high / low if low > 0 else math.inf
        deviations = worse_by / spread if spread > 0 else math.inf
        if worse_by > 0 and ratio >= ratio_min and deviations >= DEVIATIONS_MIN:
            found[host] = Outlier(value, middle, ratio, deviations)
    return found
