"""How the clock of one host stands to that of another, from the exchanges of their steps.

No rank leaves an exchange before the last has come. So what one host saw as "all have come" was not before another host came, which bounds the
difference of their clocks from both sides, whatever the network did: ``came_b - left_a <= b - a <= left_b - came_a``. Clocks also drift apart; in
a window of ten minutes the drift is taken to be constant. Any two exchanges of a window bound it, and it is carried along, so that the
difference lies within the bounds of its minute. Bounds that contradict each other say that a clock did not run evenly: `not aligned`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from penstock.report.accounts.timeline import UNMEASURED, RankTimeline, StepColumns, Times, no_times

NOT_ALIGNED = "not aligned"
MINUTE_NS = 60_000_000_000
WINDOW_NS = 10 * MINUTE_NS
#: Clocks of machines that work do not drift apart faster; NTP corrects them by half of it at most.
_DRIFT_MAX = 1e-3
#: Of a window, exchanges that are compared with each other; the tightest ones.
_COMPARED = 64


@dataclass(frozen=True, slots=True, eq=False)
class Meetings:
    """Exchanges of one host in one life, by step: when its last rank came, and when its first one left."""

    steps: Times
    came: Times
    left: Times


@dataclass(frozen=True, slots=True)
class AlignedMinute:
    """Bounds of the difference of two clocks, in ns, at a moment of the reference clock; None where they contradict each other."""

    at: int
    low: int | None
    high: int | None
    #: What was fitted in the window of the minute: nanoseconds that the other clock gains in a second.
    drift_low: float
    drift_high: float

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        bounds = NOT_ALIGNED if self.low is None else {"low_ns": self.low, "high_ns": self.high}
        return {
            "at_ns": self.at,
            "offset": bounds,
            "drift_ns_per_s": [round(self.drift_low, 3), round(self.drift_high, 3)],
        }


@dataclass(frozen=True, slots=True)
class HostAlignment:
    """The clock of a host beside that of the reference, in one life."""

    life: int
    reference: str
    clock: str
    minutes: tuple[AlignedMinute, ...] = ()
    #: Why it is not aligned at all.
    reason: str = ""

    def bounds(self, at: int) -> tuple[int, int] | None:
        """Between which moments of the other clock a moment of the reference lies; None where that is not known."""
        near = min(self.minutes, key=lambda minute: abs(minute.at - at), default=None)
        if near is None or near.low is None or near.high is None or abs(near.at - at) > MINUTE_NS:
            return None
        drifts = [drift * (at - near.at) / 1e9 for drift in (near.drift_low, near.drift_high)]
        return at + near.low + int(np.floor(min(drifts))), at + near.high + int(np.ceil(max(drifts)))

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        document: dict[str, object] = {"life": self.life, "reference": self.reference, "clock": self.clock}
        if not self.minutes:
            return document | {"minutes": NOT_ALIGNED, "reason": self.reason}
        return document | {"minutes": [minute.to_json() for minute in self.minutes]}

    def sentence(self) -> str:
        """In words, of the middle of the life."""
        known = [minute for minute in self.minutes if minute.low is not None and minute.high is not None]
        hosts = f"the clock of boot {self.clock[:8]} in life {self.life}"
        if not known:
            return f"{hosts} is {NOT_ALIGNED} with that of {self.reference[:8]}: {self.reason or 'its exchanges contradict each other'}"
        minute = known[len(known) // 2]
        assert minute.low is not None
        assert minute.high is not None
        middle, half = (minute.low + minute.high) / 2e9, (minute.high - minute.low) / 2e6
        drift = (minute.drift_low + minute.drift_high) / 2e3
        return (
            f"{hosts} is {middle:+.6f} s from that of {self.reference[:8]}, within {half:.3f} ms, and gains {drift:+.3f} ppm; "
            f"{len(known)} of {len(self.minutes)} minutes aligned"
        )


def meetings_of(ranks: Iterable[StepColumns]) -> Meetings:
    """Of the ranks of one host, from their rows; only steps that every one of them executed once."""
    hosts = [_rank_meetings(rank) for rank in ranks]
    steps = reduce(np.intersect1d, [rank.steps for rank in hosts]) if hosts else no_times()
    places = [np.searchsorted(rank.steps, steps) for rank in hosts]
    came = [rank.came[place] for rank, place in zip(hosts, places, strict=True)]
    left = [rank.left[place] for rank, place in zip(hosts, places, strict=True)]
    return Meetings(
        steps, reduce(np.maximum, came) if came else steps, reduce(np.minimum, left) if left else steps
    )


def _rank_meetings(rank: StepColumns) -> Meetings:
    left, waited = rank.others.get("exchanged"), rank.parts.get("exchange")
    if left is None or waited is None:
        return Meetings(no_times(), no_times(), no_times())
    collected = rank.parts.get("gc", np.zeros(len(left), np.int64))
    is_known = (left != UNMEASURED) & (waited != UNMEASURED) & (collected != UNMEASURED)
    is_known &= rank.firsts == rank.numbers
    steps, places, times = np.unique(rank.numbers[is_known], return_index=True, return_counts=True)
    once, places = times == 1, places[times == 1]
    # Garbage that was collected inside of the wait has its own time.
    came = (left - waited - collected)[is_known][places]
    return Meetings(steps[once], came, left[is_known][places])


def alignment_of(life: int, reference: str, clock: str, one: Meetings, other: Meetings) -> HostAlignment:
    """The other clock minus the reference, minute by minute. Pure."""
    _, at_one, at_other = np.intersect1d(one.steps, other.steps, return_indices=True)
    times = one.left[at_one]
    low, high = other.came[at_other] - times, other.left[at_other] - one.came[at_one]
    if not len(times):
        return HostAlignment(life, reference, clock, reason="they have no exchange in common")
    # The bounds hold at moments inside of the exchange, not at its end: what clocks drift apart meanwhile is allowed for.
    slack = np.ceil((high - low) * _DRIFT_MAX).astype(np.int64) + 1
    order = np.argsort(times, kind="stable")
    times, low, high = times[order], (low - slack)[order], (high + slack)[order]
    minutes: list[AlignedMinute] = []
    windows = times // WINDOW_NS
    for window in np.unique(windows).tolist():
        chosen = windows == window
        minutes += _window(times[chosen], low[chosen], high[chosen])
    return HostAlignment(life, reference, clock, tuple(minutes))


def _window(times: Times, low: Times, high: Times) -> list[AlignedMinute]:
    drift_low, drift_high = _drift(times, low, high)
    minutes = []
    for minute in np.unique(times // MINUTE_NS).tolist():
        inside = times // MINUTE_NS == minute
        at = minute * MINUTE_NS + MINUTE_NS // 2
        if drift_low > drift_high:
            minutes.append(AlignedMinute(at, None, None, drift_low * 1e9, drift_high * 1e9))
            continue
        away = (times[inside] - at).astype(np.float64)
        carried = np.stack([drift_low * away, drift_high * away])
        least = int((low[inside] - np.ceil(carried.max(0)).astype(np.int64)).max())
        most = int((high[inside] - np.floor(carried.min(0)).astype(np.int64)).min())
        is_sound = least <= most
        minutes.append(
            AlignedMinute(
                at,
                least if is_sound else None,
                most if is_sound else None,
                drift_low * 1e9,
                drift_high * 1e9,
            )
        )
    return minutes


def _drift(times: Times, low: Times, high: Times) -> tuple[float, float]:
    """Between which values the drift lies, from pairs of the tightest exchanges of the window."""
    places = _tightest(times, high - low)
    at, below, above = times[places], low[places], high[places]
    apart = (at[None, :] - at[:, None]).astype(np.float64)
    later = apart > 0
    if not later.any():
        return -_DRIFT_MAX, _DRIFT_MAX
    with np.errstate(divide="ignore", invalid="ignore"):
        least = (below[None, :] - above[:, None]) / apart
        most = (above[None, :] - below[:, None]) / apart
    return max(-_DRIFT_MAX, float(least[later].max())), min(_DRIFT_MAX, float(most[later].min()))


def _tightest(times: Times, widths: Times) -> Times:
    """Places of exchanges that are spread over the window, the tightest of each stretch."""
    if len(times) <= _COMPARED:
        return np.arange(len(times))
    begin, length = int(times[0]), int(times[-1] - times[0]) + 1
    stretches = (times - begin) * _COMPARED // length
    order = np.lexsort((widths, stretches))
    _, firsts = np.unique(stretches[order], return_index=True)
    return np.sort(order[firsts])


def alignments_of(ranks: Iterable[RankTimeline]) -> list[HostAlignment]:
    """Of every life whose ranks have several clocks; the reference is the clock of its lowest rank."""
    lives: dict[int, dict[str, list[StepColumns]]] = {}
    for rank in sorted(ranks, key=lambda one: one.rank):
        for life in rank.lives:
            lives.setdefault(life.number, {}).setdefault(life.clock, []).append(life.steps)
    alignments = []
    for number, by_clock in sorted(lives.items()):
        reference, *others = by_clock
        for clock in others:
            one, other = meetings_of(by_clock[reference]), meetings_of(by_clock[clock])
            alignments.append(alignment_of(number, reference, clock, one, other))
    return alignments
