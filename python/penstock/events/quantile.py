"""Quantiles: one definition for every screen. Nearest rank, so a quantile is a value that was measured, never one in between."""

import math
from collections.abc import Sequence
from typing import TypeVar

Number = TypeVar("Number", int, float)


def quantile(ordered: Sequence[Number], share: float) -> Number:
    """The smallest of the sorted values that at least ``share`` of them do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def p50_p99(values: Sequence[float]) -> tuple[float, float]:
    """What half and 99 % of all values do not exceed; zeros where there are none."""
    ordered = sorted(values)
    return (quantile(ordered, 0.5), quantile(ordered, 0.99)) if ordered else (0.0, 0.0)
