"""How often to save, by two formulas that people know: they weigh the time of a save against the work that a failure undoes."""

import math


def young_s(save_s: float, between_failures_s: float) -> float:
    """Young 1974: the first approximation, √(2 δ M)."""
    return math.sqrt(2 * save_s * between_failures_s)


def daly_s(save_s: float, between_failures_s: float) -> float:
    """Daly 2006: the higher-order estimate; the training between two saves, for a save that is short beside the time between failures."""
    if save_s >= 2 * between_failures_s:
        return between_failures_s
    share = save_s / (2 * between_failures_s)
    return young_s(save_s, between_failures_s) * (1 + math.sqrt(share) / 3 + share / 9) - save_s
