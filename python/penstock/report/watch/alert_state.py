"""Alerts that fire and end: rules over what is seen of a run, with hysteresis. Time comes in as an argument, so that it is pure."""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from penstock.report.watch.alert_rules import SCALAR, AlertRule, AlertRules
from penstock.report.watch.rank_rows import RankState
from penstock.report.watch.run_watch import Snapshot

#: Values that a median or a slope is taken from; older ones are thinned to every second one.
_HISTORY = 512
#: Fewer values are no median and no slope.
_HISTORY_MIN = 5
#: Seconds for which a number that is not finite counts as new.
_NOT_FINITE_S = 30.0
_HOUR_S = 3600.0
#: So many times as long as any other step the first one may take.
_FIRST_TIMES = 10.0


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """An alert fires, or is over."""

    state: str
    rule: AlertRule
    #: None: it is about the run.
    rank: int | None
    life: int
    step: int
    #: What was seen; None where there was nothing to see.
    value: float | None
    #: Seconds since it was first bad.
    lasting_s: float
    detail: str = ""

    @property
    def text(self) -> str:
        """In a sentence."""
        of = "" if self.rank is None else f"rank {self.rank}: "
        if self.state == "cleared" and self.rule.kind == "absence":
            return f"{self.rule.name} is over: {of}there is a new {self.rule.signal} (step {self.step})"
        if self.state == "cleared":
            return f"{self.rule.name} is over: {of}{_seen(self.rule, self.value)}"
        return f"{self.rule.name}: {of}{_seen(self.rule, self.value)} (step {self.step}){self.detail and ', ' + self.detail}"


def _seen(rule: AlertRule, value: float | None) -> str:
    side = "above" if rule.above is not None else "below"
    shown = "no value" if value is None else f"{value:.4g}"
    if rule.kind == "absence":
        return f"no {rule.signal} for {shown} s"
    what = {
        "ratio": f"{rule.signal} is {shown} of the run's median",
        "slope": f"{rule.signal} changes by {shown} an hour",
    }
    return f"{what.get(rule.kind, f'{rule.signal} is {shown}')}, limit {side} {rule.limit:g}"


@dataclass(slots=True)
class _History:
    """Of one rule on one rank, or on the run."""

    values: "deque[tuple[float, float]]" = field(default_factory=deque)
    every: int = 1
    count: int = 0
    #: The step that gave the value last, and when that was seen.
    mark: int | None = None
    marked_at: float = 0.0

    def note(self, now: float, value: float, window_s: float) -> None:
        """Keep it, as one of at most so many."""
        if self.count % self.every == 0 and math.isfinite(value):
            self.values.append((now, value))
        self.count += 1
        while self.values and self.values[0][0] < now - window_s:
            self.values.popleft()
        if len(self.values) > _HISTORY:
            self.values = deque(list(self.values)[::2])
            self.every *= 2


@dataclass(slots=True)
class _Turn:
    """Where a rule stands."""

    #: When it was looked at first.
    seen_since: float
    bad_since: float | None = None
    good_since: float | None = None
    is_firing: bool = False


class _Seen(NamedTuple):
    """What is compared with the limits, and whose it is."""

    measure: float
    rank: int | None
    state: RankState


class AlertStates:
    """Of all rules of one run. A rule looks at the worst rank: what stops all of them is one alert."""

    def __init__(self, rules: AlertRules) -> None:
        self.rules = rules
        self._turns: dict[str, _Turn] = {}
        self._histories: dict[tuple[str, int | None], _History] = {}
        self._not_finite: dict[int, deque[tuple[float, int]]] = {}

    def firing(self) -> list[str]:
        """Alerts that last."""
        return [name for name, turn in self._turns.items() if turn.is_firing]

    def restore(self, firing: Mapping[str, bool]) -> None:
        """Alerts that an earlier watcher left firing; they are not raised again."""
        known = {rule.name for rule in self.rules.rules}
        for name, is_firing in firing.items():
            if is_firing and name in known:
                self._turns[name] = _Turn(0.0, bad_since=0.0, is_firing=True)

    def refresh(self, snapshot: Snapshot, now: float, *, ranks: set[int], is_first: bool) -> list[AlertEvent]:
        """What fires or ends now, of some ranks, and of the run where this host is the first. ``now``: of a clock that nobody sets."""
        events: list[AlertEvent] = []
        if not snapshot.ranks:
            return events
        for state in snapshot.ranks:
            if state.rank in ranks:
                self._count_not_finite(state, now)
        for rule in self.rules.rules:
            turn = self._turns.setdefault(rule.name, _Turn(now))
            worst = self._worst(rule, snapshot, now, ranks, is_first=is_first)
            change = _turn(rule, turn, now, None if worst is None else worst.measure)
            if change is not None and worst is not None:
                lasting_s = 0.0 if not turn.bad_since else now - turn.bad_since
                detail = snapshot.impossible if rule.signal == "mfu_impossible" else ""
                life, step = worst.state.life, worst.state.step
                events.append(
                    AlertEvent(change, rule, worst.rank, life, step, worst.measure, lasting_s, detail)
                )
        return events

    def _worst(
        self, rule: AlertRule, snapshot: Snapshot, now: float, ranks: set[int], *, is_first: bool
    ) -> _Seen | None:
        """Of all ranks that have something to compare."""
        worst: _Seen | None = None
        for rank, state, value, mark in self._values(rule, snapshot, ranks, is_first=is_first):
            history = self._histories.setdefault((rule.name, rank), _History())
            measure = _measure(rule, history, now, value, mark, snapshot)
            if measure is None:
                continue
            is_worse = worst is None or not math.isnan(worst.measure)
            if is_worse and worst is not None and not math.isnan(measure):
                is_worse = measure < worst.measure if rule.below is not None else measure > worst.measure
            if is_worse:
                worst = _Seen(measure, rank, state)
        return worst

    def _values(
        self, rule: AlertRule, snapshot: Snapshot, ranks: set[int], *, is_first: bool
    ) -> Iterator[tuple[int | None, RankState, float | None, int | None]]:
        """Rank, its state, the value, and the step that gave it."""
        figures = snapshot.figures
        runtime = figures.goodput.get("runtime")
        of_run = {
            "mfu": snapshot.recent_mfu,
            "mfu_impossible": float(bool(snapshot.impossible)),
            "goodput": runtime if isinstance(runtime, float) else None,
            "tokens_per_s": snapshot.recent_tokens_per_s,
        }
        if rule.signal in of_run:
            if is_first and snapshot.ranks:
                newest = max(snapshot.ranks, key=lambda state: state.step)
                yield None, newest, of_run[rule.signal] if snapshot.is_running else None, None
            return
        for state in snapshot.ranks:
            if state.rank not in ranks:
                continue
            if rule.signal == "step":
                age_s = snapshot.ages_s[state.rank]
                if state.ended_ns is None:
                    # The first step of a life compiles and warms up.
                    age_s /= _FIRST_TIMES
                # Nothing is missing any more of a table that was closed, or of a rank that no later life has.
                yield state.rank, state, 0.0 if state.is_over else age_s, None
            else:
                value, mark = self._rank_value(rule.signal, state)
                yield state.rank, state, value, mark

    def _rank_value(self, signal: str, state: RankState) -> tuple[float | None, int | None]:
        if signal.startswith(SCALAR):
            name = signal.removeprefix(SCALAR)
            return state.scalars.get(name), state.scalar_steps.get(name)
        if signal == "not_finite":
            seen = self._not_finite[state.rank]
            return float(state.not_finite - seen[0][1]), None
        if signal == "lost_rows":
            return float(state.lost_rows), None
        if signal == "step_s":
            return None if state.step_ns is None else state.step_ns / 1e9, None
        name = {"rss_bytes": "rss"}.get(signal, signal.removesuffix("_bytes"))
        value = None if state.is_over else state.memory.get(name)
        return None if value is None else float(value), None

    def _count_not_finite(self, state: RankState, now: float) -> None:
        """Remember how many there were a while ago."""
        # The first entry says how many there were before the watch.
        seen = self._not_finite.setdefault(state.rank, deque([(now, 0)]))
        if state.not_finite != seen[-1][1]:
            seen.append((now, state.not_finite))
        while len(seen) > 1 and seen[1][0] < now - _NOT_FINITE_S:
            seen.popleft()


def _measure(
    rule: AlertRule,
    history: _History,
    now: float,
    value: float | None,
    mark: int | None,
    snapshot: Snapshot,
) -> float | None:
    """What is compared with the limits; None where nothing can be said."""
    if rule.kind == "absence":
        if rule.signal != "step":
            if mark != history.mark or not history.marked_at:
                history.mark, history.marked_at = mark, now
            return now - history.marked_at if snapshot.is_running else 0.0
        usual_s = snapshot.usual_step_s or 0.0
        return value if value is None or value >= rule.usual_steps * usual_s else 0.0
    if value is None or rule.kind == "threshold":
        return value
    is_ratio = rule.kind == "ratio"
    history.note(now, value, math.inf if is_ratio else rule.window_s)
    if len(history.values) < _HISTORY_MIN:
        return None
    if is_ratio:
        middle = float(np.median([seen for _, seen in history.values]))
        return value / middle if middle else None
    return _slope(history.values, relative=rule.relative)


def _slope(history: "deque[tuple[float, float]]", *, relative: bool) -> float | None:
    """By least squares, for each hour."""
    times, values = (np.array(column) for column in zip(*history, strict=True))
    times = times - times.mean()
    spread = float((times * times).sum())
    mean = float(values.mean())
    if not spread or (relative and not mean):
        return None
    slope = float((times * (values - mean)).sum()) / spread * _HOUR_S
    return slope / abs(mean) if relative else slope


def _turn(rule: AlertRule, turn: _Turn, now: float, measure: float | None) -> str | None:
    """``firing`` or ``cleared``, where it becomes that now."""
    if measure is None:
        # Nothing to see is neither good nor bad: a count of seconds begins again with the next value.
        turn.good_since = None
        turn.bad_since = turn.bad_since if turn.is_firing else None
        return None
    if rule.kind == "absence":
        is_bad = is_due = measure >= rule.for_s
        is_good = not is_bad
    else:
        is_bad, is_good = rule.is_bad(measure), rule.is_good(measure)
        if is_bad and turn.bad_since is None:
            turn.bad_since = now
        is_due = is_bad and turn.bad_since is not None and now - turn.bad_since >= rule.for_s
    if not turn.is_firing:
        if not is_bad:
            turn.bad_since = None
        elif is_due and now - turn.seen_since >= rule.after_s:
            turn.bad_since = turn.bad_since or now
            turn.is_firing, turn.good_since = True, None
            return "firing"
        return None
    if not is_good:
        turn.good_since = None
        return None
    turn.good_since = now if turn.good_since is None else turn.good_since
    if now - turn.good_since < rule.clear_for_s:
        return None
    turn.is_firing = False
    turn.bad_since = turn.good_since = None
    return "cleared"
